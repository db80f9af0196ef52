#!/bin/sh
# For each service a kubeconfig of its own, with the rights of its service account and no others.
# Needs kubectl and the administrator's file; writes beside it, into the folder that is its first argument.  The third is
# where the services find the cluster, which need not be where this script finds it.
set -eu
folder=$1 roles=$2 server=$3
export KUBECONFIG="$folder/kubeconfig.yaml"
until kubectl get namespaces > /dev/null 2>&1; do sleep 1; done
kubectl apply -f "$roles/namespace.yaml" -f "$roles"
user=$(kubectl config view --minify --output 'jsonpath={.contexts[0].context.user}')
cluster=$(kubectl config view --minify --output 'jsonpath={.contexts[0].context.cluster}')
elsewhere=$folder/setup.yaml
cp "$KUBECONFIG" "$elsewhere.new"
kubectl --kubeconfig "$elsewhere.new" config set-cluster "$cluster" --server "$server" > /dev/null
chmod 0644 "$elsewhere.new"
mv "$elsewhere.new" "$elsewhere"
for service in watcher scheduler scaler status; do
  token=$(kubectl create token --namespace muster --duration 8760h "$service")
  file="$folder/$service.yaml"
  cp "$elsewhere" "$file.new"
  kubectl --kubeconfig "$file.new" config unset users > /dev/null
  kubectl --kubeconfig "$file.new" config set-credentials "$user" --token "$token" > /dev/null
  chmod 0644 "$file.new"
  mv "$file.new" "$file"
done
