//! Exact sleeps for one core: a heap of due times behind one timerfd. tokio's own timers round up
//! to a millisecond, which is too coarse for pacing requests and for responding after `t=1`.
//!
//! Timeouts are many, nearly never fire, and belong in [`crate::deadlines`].

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::async_fd;
use crate::clock::{SECOND_NS, now_ns};
use crate::slab::{Slab, SlabKey};

/// Timers of one core. Cheap to clone; not `Send`.
#[derive(Clone, Debug)]
pub struct Timers {
    inner: Rc<RefCell<TimerQueue>>,
}

#[derive(Debug)]
struct TimerQueue {
    heap: BinaryHeap<Reverse<(u64, SlabKey)>>,
    sleepers: Slab<Waker>,
    /// Time of the timerfd's next expiry; `u64::MAX` if it is not armed.
    armed_ns: u64,
    timer: Rc<AsyncFd<OwnedFd>>,
}

impl Timers {
    /// Creates the timers of this core and starts the task that drives them. Must be called inside
    /// a core's runtime.
    ///
    /// # Errors
    /// The kernel refused a timerfd (no descriptor left).
    pub fn start() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let timer = Rc::new(async_fd::register_readable(fd)?);
        let inner = Rc::new(RefCell::new(TimerQueue {
            heap: BinaryHeap::new(),
            sleepers: Slab::new(),
            armed_ns: u64::MAX,
            timer: Rc::clone(&timer),
        }));
        tokio::task::spawn_local(drive_timers(timer, Rc::downgrade(&inner)));
        Ok(Self { inner })
    }

    /// Returns a future that ends at `deadline_ns` of [`now_ns`], or at once if that has passed.
    pub fn sleep_until(&self, deadline_ns: u64) -> Sleep {
        Sleep { timers: Rc::clone(&self.inner), deadline_ns, key: None }
    }
}

async fn drive_timers(timer: Rc<AsyncFd<OwnedFd>>, inner: std::rc::Weak<RefCell<TimerQueue>>) {
    loop {
        let Ok(mut guard) = timer.readable().await else {
            return;
        };
        // The expiry count is never read: epoll reports each expiry as a new edge, and the next
        // timerfd_settime forgets the count. That saves a system call for each wake-up.
        guard.clear_ready();
        let Some(inner) = inner.upgrade() else { return };
        inner.borrow_mut().handle_expiry(now_ns());
    }
}

impl TimerQueue {
    fn handle_expiry(&mut self, now_ns: u64) {
        self.armed_ns = u64::MAX;
        while let Some(&Reverse((deadline_ns, key))) = self.heap.peek() {
            if self.sleepers.get(key).is_some() && deadline_ns > now_ns {
                break;
            }
            self.heap.pop();
            if let Some(waker) = self.sleepers.remove(key) {
                waker.wake();
            }
        }
        self.arm();
    }

    /// Arms the timerfd for the first sleeper, unless it fires early enough already.
    fn arm(&mut self) {
        let Some(&Reverse((deadline_ns, _))) = self.heap.peek() else {
            return;
        };
        if deadline_ns >= self.armed_ns {
            return;
        }
        let expiry =
            Timespec { tv_sec: (deadline_ns / SECOND_NS) as i64, tv_nsec: (deadline_ns % SECOND_NS) as i64 };
        let timer_spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: expiry };
        let flags = TimerfdTimerFlags::ABSTIME;
        if timerfd_settime(self.timer.get_ref(), flags, &timer_spec).is_ok() {
            self.armed_ns = deadline_ns;
        }
    }

    /// Drops the heap entries of cancelled sleepers, once they are the majority; so a client that
    /// opens and leaves cannot grow the heap.
    fn compact(&mut self) {
        if self.heap.len() > 64 && self.heap.len() > 2 * self.sleepers.len() {
            let sleepers = &self.sleepers;
            self.heap.retain(|Reverse((_, key))| sleepers.get(*key).is_some());
        }
    }
}

/// Future that ends at a given time; created by [`Timers::sleep_until`].
#[derive(Debug)]
pub struct Sleep {
    timers: Rc<RefCell<TimerQueue>>,
    deadline_ns: u64,
    key: Option<SlabKey>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if now_ns() >= self.deadline_ns {
            return Poll::Ready(());
        }
        let deadline_ns = self.deadline_ns;
        let timers = Rc::clone(&self.timers);
        let mut inner = timers.borrow_mut();
        if let Some(waker) = self.key.and_then(|key| inner.sleepers.get_mut(key)) {
            waker.clone_from(cx.waker());
            return Poll::Pending;
        }
        let key = inner.sleepers.insert(cx.waker().clone());
        inner.heap.push(Reverse((deadline_ns, key)));
        inner.arm();
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let mut inner = self.timers.borrow_mut();
            if inner.sleepers.remove(key).is_some() {
                inner.compact();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::clock::MILLISECOND_NS;
    use crate::cores::block_on;

    /// Returns the order in which three sleeps end, and whether each of them had to wait.
    async fn end_of_three(timers: &Timers) -> (Vec<u64>, bool) {
        let start_ns = now_ns();
        let order = Rc::new(RefCell::new(Vec::new()));
        let tasks = [3, 1, 2].map(|wait| {
            let deadline_ns = start_ns + wait * 10 * MILLISECOND_NS;
            let mut sleep = Box::pin(timers.sleep_until(deadline_ns));
            let order = Rc::clone(&order);
            tokio::task::spawn_local(async move {
                let mut polls = 0;
                poll_fn(|cx| {
                    polls += 1;
                    sleep.as_mut().poll(cx)
                })
                .await;
                assert!(now_ns() >= deadline_ns);
                order.borrow_mut().push(wait);
                polls > 1
            })
        });
        let mut all_waited = true;
        for task in tasks {
            all_waited &= task.await.unwrap();
        }
        (order.take(), all_waited)
    }

    #[test]
    fn sleeps_end_in_the_order_of_their_deadlines_and_not_before() {
        block_on(async {
            let timers = Timers::start().unwrap();
            let give_up_ns = now_ns() + 10 * SECOND_NS;
            // If the machine delays the test, a sleep may be over before it is awaited, and ends at
            // once.
            let order = loop {
                let (order, all_waited) = end_of_three(&timers).await;
                if all_waited {
                    break order;
                }
                assert!(now_ns() < give_up_ns, "held up each time");
            };
            assert_eq!(order, [1, 2, 3]);
        });
    }

    #[test]
    fn dropped_sleeps_leave_nothing_behind() {
        block_on(async {
            let timers = Timers::start().unwrap();
            for _ in 0..10_000 {
                let mut sleep = Box::pin(timers.sleep_until(now_ns() + 3600 * SECOND_NS));
                poll_fn(|cx| {
                    assert!(sleep.as_mut().poll(cx).is_pending());
                    Poll::Ready(())
                })
                .await;
            }
            assert!(timers.inner.borrow().heap.len() <= 65);
        });
    }
}
