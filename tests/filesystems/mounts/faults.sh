# A filesystem of the trials' own, which fails as they say: they mount it themselves, over a directory in memory.

# As root it is mounted by the mount call itself.
packages() { :; }
commands() { echo /dev/fuse; }

start() {
  mkdir "$W/source"
  mount -t tmpfs -o size=256M source "$W/source"
}
