"""Starts a load that sees less of the machine: `weir lab selftest --load-prefix 'python3 bench/vantage.py NAME'`.

- `no-perf`: root, but the kernel refuses perf_event_open.
- `unprivileged`: the user nobody, without capabilities.
- `container`: own processes only (PID and mount namespace), the capabilities and system calls that Docker leaves.
- `remote`: as `container`, and the counters of the machine are hidden: the server is on another one.

The lab knows the processes of the server; the load gets them only in `no-perf`. This process writes the record."""

import ctypes
import os
import signal
import struct
import subprocess
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
ALLOW, REFUSE_EPERM = 0x7FFF0000, 0x00050001
NUMBERS = {"x86_64": 298, "aarch64": 241}
DOCKER = ("chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,net_raw,sys_chroot,mknod,"
          "audit_write,setfcap")
HIDDEN = ("stat", "pressure/cpu", "pressure/memory", "pressure/io", "loadavg", "schedstat", "vmstat", "softirqs",
          "interrupts", "diskstats")


def refuse_perf():
    """Loads a seccomp filter that refuses perf_event_open (seccomp(2))."""
    number = NUMBERS[os.uname().machine]
    # Load the number of the call; if it is perf_event_open, refuse, else allow.
    program = b"".join(struct.pack("HBBI", *one) for one in (
        (0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, REFUSE_EPERM), (0x06, 0, 0, ALLOW)))
    buffer = ctypes.create_string_buffer(program, len(program))
    libc = ctypes.CDLL(None, use_errno=True)
    filter_ = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter_):
        raise OSError(ctypes.get_errno(), "seccomp")


def prefix(name):
    """Returns the command that starts the load in a setting."""
    capabilities = ["setpriv", "--bounding-set", "-all," + ",".join(f"+{one}" for one in DOCKER.split(",")),
                    "--inh-caps", "-all"]
    if name == "unprivileged":
        return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set", "-all",
                "--inh-caps", "-all"]
    namespaces = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    # Journals of runs on the host are not those of the container.
    mounts = ["mount -t tmpfs tmpfs /run"]
    if name == "remote":
        mounts += [f"mount --bind /dev/null /proc/{one} 2>/dev/null" for one in HIDDEN]
    if name in ("container", "remote"):
        return [*namespaces, "sh", "-c", "; ".join([*mounts, 'exec "$@"']), "sh", *capabilities]
    return []


def rewrite(name, words):
    """Returns the words without `--subject PID`, and the file of `--json FILE`, which goes to stdout."""
    kept, record, words = [], None, list(words)
    while words:
        word = words.pop(0)
        if word == "--subject" and name != "no-perf":
            words.pop(0)
        elif word == "--json" and words[0] != "-":
            record = words.pop(0)
            kept += ["--json", "-"]
        else:
            kept.append(word)
    return kept, record


def main():
    """Runs the load, and passes signals on to it."""
    name, command = sys.argv[1], sys.argv[2:]
    words, record = rewrite(name, command)
    environment = {**os.environ, "HOME": "/"}
    with open(record, "wb") if record else open(os.devnull, "wb") as output:
        child = subprocess.Popen([*prefix(name), *words], stdout=output, env=environment,
                                 preexec_fn=None if name == "unprivileged" else refuse_perf)
        for one in (signal.SIGTERM, signal.SIGINT):
            signal.signal(one, lambda number, _: child.send_signal(number))
        sys.exit(child.wait())


main()
