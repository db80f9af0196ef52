// Command fakenodes plays nodes for benchmarks: it registers them, keeps their leases, says of every pod bound to them
// that it runs and is ready, and lets go of pods that are deleted.  Nothing is ever run, and no container fails.
//
// What somebody else writes into a pod's status afterwards stays: each pod is spoken of once.
//
// With --writers so many others, each with a pod of its own, write its status again and again, as the nodes of a large
// cluster do, so that the API server is never idle and the pods of a measured job are not alone in it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os/signal"
	"sync"
	"syscall"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
)

const (
	leaseSeconds = int32(40) // as a kubelet's
	renewal      = 10 * time.Second
	patience     = 30 * time.Second      // for the API server, and for nodes to become schedulable
	breath       = 50 * time.Millisecond // between two statuses of one writer
	protobuf     = "application/vnd.kubernetes.protobuf"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the cluster")
	nodes := flag.Int("nodes", 10, "nodes to play")
	pods := flag.Int64("pods", 1000, "pods that each node takes")
	workers := flag.Int("workers", 32, "requests in flight about pods")
	writers := flag.Int("writers", 0, "how many write statuses all the time")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	must(err)
	// A negative rate is none: kubelets of many nodes do not wait for each other either.
	config.QPS, config.ContentType, config.AcceptContentTypes = -1, protobuf, protobuf+",application/json"
	client := kubernetes.NewForConfigOrDie(config)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	for number := range *nodes {
		must(register(ctx, client, fmt.Sprintf("fake-%d", number), *pods))
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(options *meta.ListOptions) { options.FieldSelector = "spec.nodeName!=" }),
		informers.WithTransform(slim))
	kubelet := &kubelet{client: client, told: map[types.UID]bool{}, lister: factory.Core().V1().Pods().Lister()}
	kubelet.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	informer := factory.Core().V1().Pods().Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(pod any) { kubelet.enqueue(pod.(*core.Pod)) },
		UpdateFunc: func(_, pod any) { kubelet.enqueue(pod.(*core.Pod)) },
		DeleteFunc: kubelet.forget,
	})
	must(err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for range *workers {
		go kubelet.work(ctx)
	}
	go renewLeases(ctx, client, *nodes)
	must(untilSchedulable(ctx, client))
	for number := range *writers {
		must(occupy(ctx, client, number))
	}
	fmt.Printf("ready %d nodes\n", *nodes)
	<-ctx.Done()
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// slim leaves of a pod what is looked at here.
func slim(object any) (any, error) {
	pod, ok := object.(*core.Pod)
	if !ok {
		return object, nil
	}
	containers := make([]core.Container, len(pod.Spec.Containers))
	for index, container := range pod.Spec.Containers {
		containers[index] = core.Container{Name: container.Name, Image: container.Image}
	}
	return &core.Pod{
		ObjectMeta: meta.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec:   core.PodSpec{Containers: containers},
		Status: core.PodStatus{Phase: pod.Status.Phase},
	}, nil
}

func register(ctx context.Context, client kubernetes.Interface, name string, pods int64) error {
	room := core.ResourceList{
		core.ResourcePods:                   *resource.NewQuantity(pods, resource.DecimalSI),
		core.ResourceCPU:                    resource.MustParse("10k"),
		core.ResourceMemory:                 resource.MustParse("1Pi"),
		core.ResourceEphemeralStorage:       resource.MustParse("1Pi"),
		core.ResourceName("nvidia.com/gpu"): *resource.NewQuantity(8*pods, resource.DecimalSI),
		core.ResourceName("hugepages-2Mi"):  resource.MustParse("0"),
	}
	now := meta.Now()
	node := &core.Node{
		ObjectMeta: meta.ObjectMeta{
			Name:   name,
			Labels: map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "fake"},
		},
		Status: core.NodeStatus{
			Capacity:    room,
			Allocatable: room,
			Conditions: []core.NodeCondition{{
				Type: core.NodeReady, Status: core.ConditionTrue, Reason: "KubeletReady",
				LastHeartbeatTime: now, LastTransitionTime: now,
			}},
		},
	}
	_, err := client.CoreV1().Nodes().Create(ctx, node, meta.CreateOptions{})
	if errors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// untilSchedulable waits for the controller manager to take away the taint with which nodes are admitted.
func untilSchedulable(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		list, err := client.CoreV1().Nodes().List(ctx, meta.ListOptions{LabelSelector: "type=fake"})
		if err != nil {
			return err
		}
		tainted := 0
		for _, node := range list.Items {
			tainted += min(len(node.Spec.Taints), 1)
		}
		if tainted == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d nodes keep their taints; does a controller manager run?", tainted)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func renewLeases(ctx context.Context, client kubernetes.Interface, nodes int) {
	for {
		for number := range nodes {
			if err := renew(ctx, client, fmt.Sprintf("fake-%d", number)); err != nil && ctx.Err() == nil {
				log.Print(err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewal):
		}
	}
}

func renew(ctx context.Context, client kubernetes.Interface, name string) error {
	leases := client.CoordinationV1().Leases(core.NamespaceNodeLease)
	seconds, now := leaseSeconds, meta.NowMicro()
	spec := coordination.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	_, err = leases.Patch(ctx, name, types.MergePatchType, patch, meta.PatchOptions{})
	if errors.IsNotFound(err) {
		lease := &coordination.Lease{ObjectMeta: meta.ObjectMeta{Name: name}, Spec: spec}
		_, err = leases.Create(ctx, lease, meta.CreateOptions{})
	}
	return err
}

// occupy makes a pod of nobody's and writes its status from then on.
func occupy(ctx context.Context, client kubernetes.Interface, number int) error {
	pods := client.CoreV1().Pods(meta.NamespaceDefault)
	pod := &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: fmt.Sprintf("writer-%d", number)},
		Spec: core.PodSpec{
			NodeName:   "fake-0",
			Containers: []core.Container{{Name: "main", Image: "registry.example/other:1"}},
		},
	}
	if _, err := pods.Create(ctx, pod, meta.CreateOptions{}); err != nil {
		return err
	}
	go func() {
		for turn := 0; ctx.Err() == nil; turn++ {
			patch := fmt.Appendf(nil, `{"status":{"message":"turn %d"}}`, turn)
			_, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, meta.PatchOptions{}, "status")
			if err != nil && ctx.Err() == nil {
				log.Print(err)
			}
			time.Sleep(breath)
		}
	}()
	return nil
}

// kubelet is what all nodes have in common.
type kubelet struct {
	client kubernetes.Interface
	lister listers.PodLister
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]
	lock   sync.Mutex
	told   map[types.UID]bool // pods of which was said that they run
	ips    int
}

func (k *kubelet) enqueue(pod *core.Pod) {
	if pod.DeletionTimestamp != nil || !k.wasTold(pod.UID) {
		k.queue.Add(cache.MetaObjectToName(pod))
	}
}

func (k *kubelet) forget(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	k.lock.Lock()
	defer k.lock.Unlock()
	delete(k.told, object.(*core.Pod).UID)
}

func (k *kubelet) wasTold(uid types.UID) bool {
	k.lock.Lock()
	defer k.lock.Unlock()
	return k.told[uid]
}

func (k *kubelet) work(ctx context.Context) {
	for {
		at, quit := k.queue.Get()
		if quit || ctx.Err() != nil {
			return
		}
		if err := k.settle(ctx, at); err != nil && !errors.IsNotFound(err) && !errors.IsConflict(err) {
			log.Print(err)
			k.queue.AddRateLimited(at)
		} else {
			k.queue.Forget(at)
		}
		k.queue.Done(at)
	}
}

// settle does for one pod what it waits for, if anything.
func (k *kubelet) settle(ctx context.Context, at cache.ObjectName) error {
	pod, err := k.lister.Pods(at.Namespace).Get(at.Name)
	if err != nil {
		return err
	}
	pods := k.client.CoreV1().Pods(at.Namespace)
	if pod.DeletionTimestamp != nil {
		now := int64(0)
		return pods.Delete(ctx, at.Name, meta.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: &meta.Preconditions{UID: &pod.UID},
		})
	}
	if pod.Status.Phase != core.PodPending || k.wasTold(pod.UID) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": k.running(pod)})
	if err != nil {
		return err
	}
	if _, err = pods.Patch(ctx, at.Name, types.StrategicMergePatchType, patch, meta.PatchOptions{}, "status"); err != nil {
		return err
	}
	k.lock.Lock()
	defer k.lock.Unlock()
	k.told[pod.UID] = true
	return nil
}

// running is the status of a pod whose containers all started at once.
func (k *kubelet) running(pod *core.Pod) core.PodStatus {
	k.lock.Lock()
	k.ips++
	ip := fmt.Sprintf("10.%d.%d.%d", 64+k.ips>>16, k.ips>>8&255, k.ips&255)
	k.lock.Unlock()
	now, yes := meta.Now(), true
	status := core.PodStatus{
		Phase: core.PodRunning, StartTime: &now,
		HostIP: "127.0.0.1", PodIP: ip, PodIPs: []core.PodIP{{IP: ip}},
	}
	for _, kind := range []core.PodConditionType{core.PodInitialized, core.ContainersReady, core.PodReady} {
		status.Conditions = append(status.Conditions,
			core.PodCondition{Type: kind, Status: core.ConditionTrue, LastTransitionTime: now})
	}
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, core.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: true, Started: &yes,
			State: core.ContainerState{Running: &core.ContainerStateRunning{StartedAt: now}},
		})
	}
	return status
}
