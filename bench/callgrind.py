"""Subjects under callgrind: counts the user instructions of a process between two points of rest.

Nothing here depends on time. The subject has a virtual clock, so its timers never fire; and its driver sends
the next bytes only when the subject sleeps in epoll_wait, so it wakes as often in each run."""

import ctypes
import glob
import os
import re
import resource
import shutil
import signal
import subprocess
import time

import harness
import virtual_clock
from harness import Failed

VALGRIND = shutil.which("valgrind") or "/usr/bin/valgrind"
VGDB = shutil.which("vgdb") or "/usr/bin/vgdb"
START_LIMIT_S, COMMAND_LIMIT_S, REST_LIMIT_S = 180, 120, 60
DESCRIPTORS = 4096

# The C library chooses its functions by the CPU and by the sizes of the caches. Valgrind's CPUID has the
# features of Haswell on every CPU with AVX2. The tunables fix the sizes, and exclude `rep movsb`, of which
# callgrind counts an instruction per byte. They are those of glibc 2.33 and later.
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LC_ALL": "C",
    "GLIBC_TUNABLES": "glibc.cpu.x86_non_temporal_threshold=0x4000000"
                      ":glibc.cpu.x86_rep_movsb_threshold=0x2000000"
                      ":glibc.cpu.x86_rep_stosb_threshold=0x2000000",
}

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_ADDR_NO_RANDOMIZE = 0x0040000
# Numbers of x86-64: epoll_wait, epoll_pwait, epoll_pwait2.
_EPOLL_WAITS = (b"232 ", b"281 ", b"441 ")


def _read(path):
    """Returns the bytes of a file of a thread; none if the thread has ended."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def unsupported():
    """Returns the reason why figures of this machine do not compare with those of others; None if they do."""
    if os.uname().machine != "x86_64":
        return f"the figures are those of x86-64, and this is {os.uname().machine}"
    with open("/proc/cpuinfo") as file:
        if " avx2 " not in file.read():
            return "this CPU has no AVX2, so libraries choose other functions than on the machines of the figures"
    return None


class Subject:
    """A process under callgrind with one core. `with` ends it. `starts_by_timers`: its clock runs at first."""

    def __init__(self, folder, argv, starts_by_timers=False):
        self.folder = folder
        self.out, self.pipe = os.path.join(folder, "out"), os.path.join(folder, "vgdb")
        self.dumps, self.core = 0, None
        self.clock = virtual_clock.VirtualClock(runs=starts_by_timers)
        command = [VALGRIND, "--tool=callgrind", "--instr-atstart=no", "--compress-strings=yes",
                   f"--callgrind-out-file={self.out}", f"--vgdb-prefix={self.pipe}",
                   f"--log-file={os.path.join(folder, 'valgrind.log')}", *argv]
        self.output = open(os.path.join(folder, "output"), "w+")
        try:
            self.process = subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, preexec_fn=self._prepare,
                                            stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT)
        except subprocess.SubprocessError:
            self.clock.close()
            raise Failed("cannot pass clock_gettime to the driver: allow seccomp filters with a listener here "
                         "(Linux 5.9; a container may forbid them)") from None

    def _prepare(self):
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        # Containers may forbid it. Valgrind places most of the memory itself.
        _libc.personality(_ADDR_NO_RANDOMIZE)
        self.clock.install()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.clock.close()
        if self.core is not None:
            os.close(self.core)
        self.output.close()

    def wait_for_port(self, port):
        harness.wait_for_port(port, self.process, START_LIMIT_S)

    def text(self):
        """Returns the output of the subject so far, for messages."""
        self.output.seek(0)
        with open(os.path.join(self.folder, "valgrind.log")) as log:
            return self.output.read() + log.read()

    def check(self):
        if self.clock.failure:
            raise Failed(f"cannot write a time into the memory of the subject: {self.clock.failure}")
        if self.process.poll() is not None:
            raise Failed(f"ended with {self.process.returncode}: {self.process.args}\n{self.text()}")

    def rest(self):
        """Waits until the core sleeps in epoll_wait."""
        if self.core is None:
            self.core = os.open(self._task_of_core(), os.O_RDONLY)
        tries, until = 0, time.monotonic() + REST_LIMIT_S
        while not os.pread(self.core, 16, 0).startswith(_EPOLL_WAITS):
            tries += 1
            if tries > 50:
                time.sleep(0.0002)
                self.check()
                if time.monotonic() > until:
                    raise Failed(f"the core does not come to rest: {self.process.args}")

    def _task_of_core(self):
        """Returns the file with the system call of the only core, whose thread is called `NAME-0`."""
        until = time.monotonic() + START_LIMIT_S
        while time.monotonic() < until:
            self.check()
            for task in glob.glob(f"/proc/{self.process.pid}/task/*"):
                if re.fullmatch(rb"[a-z]+-0\n", _read(f"{task}/comm")):
                    return f"{task}/syscall"
            time.sleep(0.01)
        raise Failed(f"no thread of a core: {self.process.args}")

    def _rest_of_all(self):
        """Waits until no thread of the subject runs or waits for valgrind's lock: log and control threads."""
        quiet, until = 0, time.monotonic() + REST_LIMIT_S
        while quiet < 3:
            self.rest()
            time.sleep(0.003)
            quiet = quiet + 1 if all(map(self._sleeps, os.listdir(f"/proc/{self.process.pid}/task"))) else 0
            if time.monotonic() > until:
                raise Failed(f"some thread does not come to rest: {self.process.args}")

    def _sleeps(self, task):
        # Valgrind's lock is a pipe, so a thread that waits for it is in read(2), number 0; 228 is a reading of
        # the clock.
        call = _read(f"/proc/{self.process.pid}/task/{task}/syscall")
        return not call.startswith((b"running", b"0 ", b"228 "))

    def start_counting(self):
        """Starts the instrumentation, and stops the clock if it still runs."""
        if not self.clock.ahead_ns:
            self.clock.stop()
        self._command("instrumentation on")
        self.rest()

    def zero(self):
        self._rest_of_all()
        self._command("zero")
        self.rest()

    def dump(self):
        """Returns the path of a profile of everything since the last dump."""
        self._rest_of_all()
        self._command("dump")
        self.rest()
        self.dumps += 1
        return f"{self.out}.{self.dumps}"

    def _command(self, text):
        self.check()
        argv = [VGDB, f"--vgdb-prefix={self.pipe}", f"--pid={self.process.pid}", *text.split()]
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=COMMAND_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"no reply: {' '.join(argv)}") from None
        if done.returncode:
            raise Failed(f"{' '.join(argv)}: {done.stdout}{done.stderr}")


def instructions(path):
    """Returns the total of a profile."""
    with open(path) as file:
        for line in file:
            if line.startswith(("summary:", "totals:")):
                return int(line.split()[1])
    raise Failed(f"{path}: no total")


def functions(path):
    """Returns the instructions of each function of a profile, without its callees."""
    names, own, current, is_callee = {}, {}, None, False
    with open(path) as file:
        for line in file:
            if line.startswith("fn="):
                number, _, name = line[3:].rstrip("\n").partition(" ")
                current = names.setdefault(number, name)
            elif line.startswith("cfn="):
                number, _, name = line[4:].rstrip("\n").partition(" ")
                names.setdefault(number, name)
            elif line.startswith("calls="):
                is_callee = True
            elif line[:1] in "+-*0123456789" and current is not None:
                if not is_callee:
                    own[current] = own.get(current, 0) + int(line.split()[1])
                is_callee = False
    return own
