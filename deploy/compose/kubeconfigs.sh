#!/bin/sh
# For each service a kubeconfig of its own, with the rights of its service account and no others, and for the set-up the
# administrator's.  Needs kubectl.  The arguments: the administrator's file, the folder with a folder for each of them,
# that of the roles, and where they find the cluster, which need not be where this script finds it.
set -eu
export KUBECONFIG="$1"
credentials=$2 roles=$3 server=$4
until kubectl get namespaces > /dev/null 2>&1; do sleep 1; done
kubectl apply -f "$roles/namespace.yaml" -f "$roles"
user=$(kubectl config view --minify --output 'jsonpath={.contexts[0].context.user}')
cluster=$(kubectl config view --minify --output 'jsonpath={.contexts[0].context.cluster}')
elsewhere=$credentials/admin/kubeconfig.yaml
cp "$KUBECONFIG" "$elsewhere.new"
kubectl --kubeconfig "$elsewhere.new" config set-cluster "$cluster" --server "$server" > /dev/null
chmod 0644 "$elsewhere.new"
mv "$elsewhere.new" "$elsewhere"
for service in watcher scheduler scaler status; do
  token=$(kubectl create token --namespace muster --duration 8760h "$service")
  file=$credentials/$service/kubeconfig.yaml
  cp "$elsewhere" "$file.new"
  kubectl --kubeconfig "$file.new" config unset users > /dev/null
  kubectl --kubeconfig "$file.new" config set-credentials "$user" --token "$token" > /dev/null
  chmod 0644 "$file.new"
  mv "$file.new" "$file"
done
