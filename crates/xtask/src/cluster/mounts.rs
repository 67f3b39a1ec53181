//! The mounts of a cluster: shell scripts that run in a mount namespace of their own.

/// Arguments: the cache directory, the private directories relative to it, and the resolver configuration. The cache
/// directory may be below one of the covered directories, so it is moved away and back.
///
/// `/etc/resolv.conf` may be a link to a file in the machine's `/run`, so that file is created in the cluster's own one.
///
/// Settings of the kernel are read-only, except for those of the network, which belong to the cluster's namespace. The
/// kubelet would change some of the others for the whole machine; it reads its own values of them and changes nothing.
pub const SET_UP: &str = r#"
mount --rbind "$1" /mnt
mount --bind "/mnt/$2/var" /var
mount --bind "/mnt/$2/tmp" /tmp
mount -t tmpfs -o mode=755 run /run
mkdir -p "$1"
mount --move /mnt "$1"
mount -o remount,bind,ro /

resolver=$(readlink --canonicalize-missing /etc/resolv.conf)
[ -e "$resolver" ] || install -D --mode=644 /dev/null "$resolver"
mount --bind "$3" "$resolver"

mount --bind /proc/sys /proc/sys
mount --bind /proc/sys/net /proc/sys/net
mount -o remount,bind,ro /proc/sys
while read -r setting value; do
    file=/run/kernel-settings/$setting
    mkdir -p "${file%/*}"
    echo "$value" >"$file"
    mount --bind "$file" "/proc/sys/$setting"
done <<END
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxbytes 25000000
kernel/keys/root_maxkeys 1000000
END
mount --make-rshared /
"#;

/// Arguments: the resolver configuration and a command that uses it, on the machine's file system. The sockets of
/// systemd-resolved and nscd are hidden, which would answer in place of the resolver.
pub const USE_RESOLVER: &str = r#"
for directory in /run/systemd/resolve /run/nscd; do
    [ ! -d "$directory" ] || mount -t tmpfs -o mode=755 none "$directory"
done
case $(readlink --canonicalize-missing /etc/resolv.conf) in
/run/systemd/resolve/*) touch /run/systemd/resolve/resolv.conf /run/systemd/resolve/stub-resolv.conf ;;
esac
mount --bind "$0" /etc/resolv.conf
exec "$@"
"#;

#[cfg(test)]
mod tests {
    use super::{SET_UP, USE_RESOLVER};
    use crate::commands::output;
    use std::fs;
    use std::path::Path;
    use std::process::Command;
    use tempfile::TempDir;

    const RESOLVER: &str = "nameserver 10.250.0.1";

    /// What `/etc/resolv.conf` is: a file, the link of systemd-resolved, the link of resolvconf.
    const FILE: &str = "";
    const RESOLVED: &str = "../run/systemd/resolve/stub-resolv.conf";
    const RESOLVCONF: &str = "/run/resolvconf/resolv.conf";

    /// Arguments: what `/etc/resolv.conf` is. Has `/etc` and `/run` of its own, with the resolver of another machine.
    const MACHINE: &str = r#"
mount -t tmpfs none /etc
mount -t tmpfs none /run
mkdir -p /run/systemd/resolve /run/resolvconf
echo "nameserver 127.0.0.53" | tee /run/systemd/resolve/stub-resolv.conf /run/resolvconf/resolv.conf >/etc/resolv.conf
touch /run/systemd/resolve/io.systemd.Resolve
[ -z "$1" ] || ln -sf "$1" /etc/resolv.conf
shift
"#;

    /// A cache directory with the files of one cluster; `None` without root, which mounts need.
    fn cache() -> Option<TempDir> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let cache = tempfile::tempdir().unwrap();
        for directory in ["private/var", "private/tmp"] {
            fs::create_dir_all(cache.path().join(directory)).unwrap();
        }
        fs::write(cache.path().join("resolv.conf"), RESOLVER).unwrap();
        Some(cache)
    }

    /// The output of a script in namespaces like those of a cluster, on a machine with this `/etc/resolv.conf`.
    fn in_namespaces(link: &str, script: &str, args: &[&str]) -> String {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--pid", "--fork", "--mount-proc", "sh", "-euc"]);
        output(command.arg(format!("{MACHINE}{script}")).args(["sh", link]).args(args)).unwrap()
    }

    /// The output of a script after the mounts of a cluster are set up.
    fn in_sandbox(cache: &Path, link: &str, script: &str) -> String {
        let (cache, resolver) = (cache.to_str().unwrap(), cache.join("resolv.conf"));
        in_namespaces(link, &format!("{SET_UP}{script}"), &[cache, "private", resolver.to_str().unwrap()])
    }

    #[test]
    fn components_use_the_resolver_of_the_cluster_on_any_machine() {
        let Some(cache) = cache() else { return };
        for link in [FILE, RESOLVED, RESOLVCONF] {
            let seen = in_sandbox(cache.path(), link, "cat /etc/resolv.conf || true");
            assert_eq!(seen, RESOLVER, "/etc/resolv.conf -> {link:?}");
        }
    }

    /// With the module `resolve` in nsswitch.conf, systemd-resolved would answer before `/etc/resolv.conf` is read.
    #[test]
    fn commands_use_the_resolver_of_the_cluster_on_any_machine() {
        let Some(cache) = cache() else { return };
        let resolver = cache.path().join("resolv.conf");
        let look = "cat /etc/resolv.conf && ls /run/systemd/resolve/io.systemd.Resolve || true";
        for link in [FILE, RESOLVED, RESOLVCONF] {
            let script = r#"script=$1; shift; sh -euc "$script" "$@" 2>/dev/null"#;
            let args = [USE_RESOLVER, resolver.to_str().unwrap(), "sh", "-c", look];
            assert_eq!(in_namespaces(link, script, &args), RESOLVER, "/etc/resolv.conf -> {link:?}");
        }
    }

    #[test]
    fn settings_of_the_kernel_are_read_only_except_those_of_the_network() {
        let Some(cache) = cache() else { return };
        let look = r#"
            for setting in vm/swappiness net/ipv4/ip_forward; do
                value=$(cat /proc/sys/$setting)
                sh -c "echo $value >/proc/sys/$setting" 2>/dev/null && echo "$setting was written" || true
            done"#;
        assert_eq!(in_sandbox(cache.path(), FILE, look), "net/ipv4/ip_forward was written");
    }

    /// It changes those that differ, for the whole machine.
    #[test]
    fn kubelet_reads_the_settings_of_the_kernel_that_it_needs() {
        let Some(cache) = cache() else { return };
        let look = r"
            cd /proc/sys
            grep . vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_max*
            grep -c ' /proc/sys/.* - tmpfs ' /proc/self/mountinfo";
        let expected = "vm/overcommit_memory:1\nvm/panic_on_oom:0\nkernel/panic:10\nkernel/panic_on_oops:1\n\
            kernel/keys/root_maxbytes:25000000\nkernel/keys/root_maxkeys:1000000\n6";
        assert_eq!(in_sandbox(cache.path(), FILE, look), expected);
    }
}
