# NFS as the kernel has it: a server and two clients, in a User-Mode-Linux kernel of this run's own. The guest
# sees the host's files, so programs run there as they are; it has one CPU.

packages() { echo user-mode-linux nfs-kernel-server nfs-common rpcbind e2fsprogs kmod iproute2; }
commands() { echo linux.uml /usr/lib/uml/modules exportfs rpc.nfsd rpc.mountd rpc.statd rpcbind mount.nfs mkfs.ext4 ip modprobe; }

# Where the guest has them.
A=/mnt/A
B=/mnt/B

start() {
  disk disk 2G
  mkfs.ext4 -q -F "$W/disk"
}

# Boots the guest for one command.
inside() {
  local version=${KIND#nfs} options=
  version=${version%%-*}
  [ "${KIND%-uncached}" = "$KIND" ] || options=,lookupcache=none,actimeo=0
  printf '%q ' "$@" >"$W/command"
  rm -f "$W/said" "$W/code"
  cat >"$W/settings" <<GUEST
version=$version options=$options
export BATCHWEAVE_PLANT=${BATCHWEAVE_PLANT:-}
GUEST
  timeout -k 10 $((500 * TIMES)) linux.uml mem=1G ubd0="$W/disk" root=/dev/root rootfstype=hostfs rootflags=/ rw \
    con=null con0=null,fd:1 con1=null quiet uml_dir="$W/" umid=guest W="$W" init="$here/mounts/nfs-guest" </dev/null >"$W/console" 2>&1 || true
  cat "$W/said" 2>/dev/null || true
  # To the log.
  cat "$W/guest.log" >&2 2>/dev/null || true
  [ -s "$W/code" ] || { tail -n 20 "$W/console" >&2; return 1; }
  return "$(cat "$W/code")"
}
