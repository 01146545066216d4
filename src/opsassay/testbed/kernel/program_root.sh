set -e
mount -t tmpfs -o mode=0755,size=16m opsassay /mnt
for place in /usr /bin /sbin /lib /lib32 /lib64; do
  if [ -L "$place" ]; then cp -P "$place" "/mnt$place"
  elif [ -d "$place" ]; then mkdir -p "/mnt$place"; mount -o bind,ro "$place" "/mnt$place"; fi
done
mkdir -p /mnt/etc /mnt/dev/shm /mnt/tmp /mnt/proc
mount -t tmpfs -o mode=1777,size=256m opsassay /mnt/dev/shm
mount -t tmpfs -o mode=1777,size=256m opsassay /mnt/tmp
mount -t proc proc /mnt/proc
for name in null zero random urandom; do touch /mnt/dev/$name; mount --bind /dev/$name /mnt/dev/$name; done
ln -s /proc/self/fd /mnt/dev/fd
for name in ssl ca-certificates localtime mime.types; do
  if [ -d "/etc/$name" ]; then mkdir "/mnt/etc/$name"; mount -o bind,ro "/etc/$name" "/mnt/etc/$name"
  elif [ -f "/etc/$name" ]; then cp "/etc/$name" "/mnt/etc/$name"; fi
done
echo "root:x:0:0::/tmp:/bin/false
program:x:PRIVATE_UID:PRIVATE_UID::/tmp:/bin/false" > /mnt/etc/passwd
echo "127.0.0.1 localhost" > /mnt/etc/hosts
printf "$1" > /mnt/etc/resolv.conf
[ -z "$1" ] || echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start || true
user="$2" directory="$3" preload="$4" count="$5"
shift 5
[ -z "$preload" ] || echo +0 > /mnt/etc/faketimerc
while [ "$count" -gt 0 ]; do
  mkdir -p "/mnt$1"
  mount -o bind,ro "$1" "/mnt$1"
  shift
  count=$((count - 1))
done
exec chroot /mnt setpriv $user --no-new-privs --pdeathsig KILL \
  env -C "$directory" ${preload:+"LD_PRELOAD=$preload${LD_PRELOAD:+:$LD_PRELOAD}"} "$@"
