#!/usr/bin/env bash
# Installs the operator and a small Slurm cluster in a kind cluster: see --help.
set -euo pipefail

name=slurm
components=(controller nodeset loginset accounting restapi token expectations webhook)

usage() {
  cat <<EOF
Usage: deploy/kind.sh [--name NAME] [--delete]

Creates a Kubernetes cluster in Docker with kind, unless it exists, builds the images of the operator, and installs the charts
slurm-operator-crds, slurm-operator and slurm with one worker. Run it again after a change: what has changed is replaced.

  --name NAME  name of the kind cluster (default: $name)
  --delete     delete the kind cluster instead
  --help       print this
EOF
}

fail() {
  echo "kind.sh: $*" >&2
  exit 1
}

is_deletion=false
while (($#)); do
  case $1 in
    --name)
      (($# > 1)) || fail "--name needs a value"
      name=$2
      shift
      ;;
    --delete) is_deletion=true ;;
    --help | -h)
      usage
      exit
      ;;
    *) fail "unknown argument $1: see --help" ;;
  esac
  shift
done

need() {
  command -v "$1" >/dev/null || fail "$1 is not installed: see $2"
}
need docker https://docs.docker.com/engine/install
need kind https://kind.sigs.k8s.io/docs/user/quick-start
docker info >/dev/null 2>&1 || fail "the Docker engine does not answer: start it, or join its group"

if $is_deletion; then
  exec kind delete cluster --name "$name"
fi

need kubectl https://kubernetes.io/docs/tasks/tools
need helm https://helm.sh/docs/intro/install

# Never another cluster than this one, whatever the current context is.
context=kind-$name
kubectl() { command kubectl --context "$context" "$@"; }
helm() { command helm --kube-context "$context" "$@"; }
step() { printf '\n==> %s\n' "$*"; }

cd "$(dirname "${BASH_SOURCE[0]}")/.."

step "kind cluster $name"
clusters=$(kind get clusters)
if grep --quiet --line-regexp --fixed-strings -- "$name" <<<"$clusters"; then
  kind export kubeconfig --name "$name"
else
  kind create cluster --name "$name" --wait 5m
fi

# kind cannot load images with attestations: https://github.com/kubernetes-sigs/kind/issues/3795
export BUILDX_NO_DEFAULT_ATTESTATIONS=1
# The tag of an image is its digest: so exactly the pods whose image has changed are replaced.
images=()
tags=()
for component in "${components[@]}"; do
  step "image $component"
  image=slurm-operator-$component
  case $component in
    webhook) build=(--file Dockerfile.webhook) ;;
    expectations) build=(--file Dockerfile.controller --build-arg BIN=expectations) ;;
    *) build=(--file Dockerfile.controller --build-arg "BIN=$component-controller") ;;
  esac
  docker build "${build[@]}" --tag "$image:kind" .
  id=$(docker image inspect --format '{{.Id}}' "$image:kind")
  tag=${id#sha256:}
  tag=${tag:0:12}
  docker tag "$image:kind" "$image:$tag"
  images+=("$image:$tag")
  tags+=(--set-string "$component.image.tag=$tag")
done

step "images to the nodes"
kind load docker-image --name "$name" "${images[@]}"

step "charts"
helm upgrade --install slurm-operator-crds charts/slurm-operator/charts/slurm-operator-crds --namespace slinky --create-namespace
helm upgrade --install slurm-operator charts/slurm-operator --namespace slinky "${tags[@]}" --wait --timeout 10m
# The one node has several workers, if you scale the NodeSet.
helm upgrade --install slurm charts/slurm --namespace slurm --create-namespace --set partitions.all.enabled=true \
  --set nodesets.worker.enabled=true --set nodesets.worker.oversubscribeNode=true

step "Slurm, whose images are pulled first"
kubectl wait --namespace slurm --for=condition=Ready --timeout=15m \
  controller/slurm restapi/slurm nodeset/slurm-worker-worker

slurm=(kubectl --context "$context" exec --namespace slurm slurm-controller-0 --container slurmctld --)
cat <<EOF

Slurm runs. Try:

  ${slurm[*]} sinfo
  ${slurm[*]} srun hostname
  kubectl --context $context scale --namespace slurm nodeset/slurm-worker-worker --replicas 2
  kubectl --context $context get --namespace slurm controllers,restapis,nodesets,pods

Delete everything:

  deploy/kind.sh --name $name --delete
EOF
