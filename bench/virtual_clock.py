"""A clock for one process and its threads: it advances by a fixed step with each reading, and nothing else.

A seccomp filter passes each clock_gettime(2) of the process to a thread here (SECCOMP_RET_USER_NOTIF), which
gives the answer. The process must not read the clock through the vDSO; valgrind hides it. The times are far ahead
of those of the kernel, so a timer or a wait with an absolute deadline never ends."""

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import threading
import time

STEP_NS = 1_000
SECOND_NS = 1_000_000_000
# CLOCK_REALTIME starts at 2024-01-01 12:00 UTC, and the other clocks this far ahead of the kernel's.
REALTIME_NS, AHEAD_NS = 1_704_110_400 * SECOND_NS, 10 * 3600 * SECOND_NS

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_NO_NEW_PRIVS = 38
# Numbers of x86-64.
_SECCOMP, _CLOCK_GETTIME = 317, 228
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_NOTIF_RECV, _NOTIF_SEND = 0xC0502100, 0xC0182101
_NOTIF_BYTES = 80
# CLOCK_REALTIME and CLOCK_REALTIME_COARSE.
_REALTIME_CLOCKS = (0, 5)


def _filter():
    load, jump_if_equal, give_back = 0x20, 0x15, 0x06
    allow, notify = 0x7FFF0000, 0x7FC00000
    steps = [(load, 0, 0, 0), (jump_if_equal, 0, 1, _CLOCK_GETTIME), (give_back, 0, 0, notify),
             (give_back, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(steps), ctypes.addressof(code)))
    return code, program


_CODE, _PROGRAM = _filter()


class _Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class VirtualClock:
    """The clock of one child process. The child calls `install` before exec.

    With `runs` it has the times of the kernel until `stop` is called, for a child that starts by timers."""

    def __init__(self, runs=False):
        self.ahead_ns = 0 if runs else time.monotonic_ns() + AHEAD_NS
        self.ours, self.childs = socket.socketpair()
        self.readings, self.time = 0, ctypes.create_string_buffer(16)
        # Reason why the child got no time.
        self.failure = None
        self.thread = threading.Thread(target=self._serve, name="virtual clock", daemon=True)
        self.thread.start()

    def install(self):
        """Passes the calls of this process on to the clock. For the child, between fork and exec."""
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        listener = _libc.syscall(_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER, _PROGRAM)
        if listener < 0:
            raise OSError(ctypes.get_errno(), "seccomp(SECCOMP_FILTER_FLAG_NEW_LISTENER)")
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", listener))
        self.childs.sendmsg([b"x"], [rights])

    def stop(self):
        """Leaps ahead: the timers of the child fire once, and never again."""
        self.ahead_ns = time.monotonic_ns() + AHEAD_NS

    def close(self):
        """Ends the clock. The child must have ended."""
        self.childs.close()
        self.thread.join()
        self.ours.close()

    def _serve(self):
        _, rights, _, _ = self.ours.recvmsg(1, socket.CMSG_LEN(4))
        if not rights:
            return
        (listener,) = struct.unpack("i", rights[0][2])
        waiting = select.poll()
        waiting.register(listener, select.POLLIN)
        waiting.register(self.ours, select.POLLIN)
        while True:
            ready = dict(waiting.poll())
            if ready.get(listener, 0) & select.POLLIN:
                self._answer(listener)
            elif ready:
                break
        os.close(listener)

    def _answer(self, listener):
        request = bytearray(_NOTIF_BYTES)
        try:
            fcntl.ioctl(listener, _NOTIF_RECV, request)
        except OSError:
            # A signal interrupted the call of the child, or killed the child.
            return
        number, thread = struct.unpack_from("<QI", request)
        clock, address = struct.unpack_from("<QQ", request, 32)
        self.readings += 1
        struct.pack_into("<qq", self.time, 0, *divmod(self._now_ns(clock), SECOND_NS))
        local, remote = _Vector(ctypes.addressof(self.time), 16), _Vector(address, 16)
        if _libc.process_vm_writev(thread, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) != 16:
            # A thread that was killed meanwhile needs no time.
            number_of_error = ctypes.get_errno()
            self.failure = None if number_of_error == errno.ESRCH else os.strerror(number_of_error)
        with contextlib.suppress(OSError):
            fcntl.ioctl(listener, _NOTIF_SEND, struct.pack("<QqiI", number, 0, 0, 0))

    def _now_ns(self, clock):
        if clock in _REALTIME_CLOCKS:
            return REALTIME_NS + self.readings * STEP_NS
        return self.ahead_ns + self.readings * STEP_NS if self.ahead_ns else time.monotonic_ns()
