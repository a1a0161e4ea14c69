//! A fork-join pool for kernels: a static partition of tasks, spinning briefly before it sleeps.
//!
//! One region at a time; the calling thread is one of the workers. There is no stealing and no queue,
//! so that the same thread meets the same rows from layer to layer.
#![allow(unsafe_code, reason = "the closure of a region is lent to the workers without a lifetime")]

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long an idle worker spins before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

type Task<'a> = &'a (dyn Fn(usize) + Sync);

/// A region that is being run: its closure (valid until the last worker has reported) and its number of tasks.
#[derive(Clone, Copy)]
struct Job {
    task: Task<'static>,
    tasks: usize,
    threads: usize,
}

/// A value on cache lines of its own.
#[repr(align(128))]
struct Padded<T>(T);

/// What workers wait for: one cache line, since each that goes from core to core takes as long as a small kernel.
struct Signal {
    /// Counts regions; a change is the signal to start.
    epoch: AtomicU32,
    job: UnsafeCell<Option<Job>>,
}

struct Shared {
    signal: Padded<Signal>,
    /// The last region that each worker has finished; the first one is the caller's.
    done: Vec<Padded<AtomicU32>>,
    /// Holders that ask the workers not to sleep.
    held: Padded<AtomicUsize>,
    asleep: Vec<Padded<AtomicBool>>,
    panicked: AtomicBool,
    stop: AtomicBool,
}

// SAFETY: `job` is written by the caller of a region before `epoch` changes and read by workers after it;
// the next write waits until all have `done` that epoch.
unsafe impl Sync for Shared {}
// SAFETY: as above; the closure behind `job` is `Sync`.
unsafe impl Send for Shared {}

/// A pool of `threads` workers, the caller included.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<(Thread, JoinHandle<()>)>,
    region: Mutex<()>,
}

impl ThreadPool {
    /// A pool of `threads`; 0 and 1 start no thread and run everything inline.
    pub fn new(threads: usize) -> ThreadPool {
        let helpers = threads.max(1) - 1;
        let mut workers = Vec::new();
        let shared = Arc::new(Shared::new(helpers + 1));
        for index in 1..=helpers {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("cleave-{index}"));
            // A machine that refuses a thread gets a smaller pool.
            let Ok(handle) = builder.spawn(move || shared.work(index)) else { break };
            workers.push((handle.thread().clone(), handle));
        }
        ThreadPool { shared, workers, region: Mutex::new(()) }
    }

    /// Threads that a region is split over, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `task(i)` for every `i` in `0..tasks` and returns when all are done.
    ///
    /// Thread `t` takes the `t`-th contiguous share. A region inside a region, or beside another one, runs inline.
    ///
    /// # Panics
    /// If a task did: the others are run first.
    pub fn run(&self, tasks: usize, task: Task<'_>) {
        let free = if self.workers.is_empty() || tasks <= 1 { None } else { self.region.try_lock().ok() };
        let Some(region) = free else {
            (0..tasks).for_each(task);
            return;
        };
        let shared = &*self.shared;
        // SAFETY: only the lifetime is changed; this function does not return before all workers are done.
        let task: Task<'static> = unsafe { std::mem::transmute::<Task<'_>, Task<'static>>(task) };
        // SAFETY: no worker reads `job` between regions.
        unsafe { *shared.signal.0.job.get() = Some(Job { task, tasks, threads: self.threads() }) };
        let epoch = shared.signal.0.epoch.fetch_add(1, SeqCst).wrapping_add(1);
        for (index, (thread, _)) in self.workers.iter().enumerate() {
            if shared.asleep[index + 1].0.load(SeqCst) {
                thread.unpark();
            }
        }
        let own = catch_unwind(AssertUnwindSafe(|| share(0, self.threads(), tasks).for_each(task)));
        let mut spins = 0u32;
        for done in &shared.done[1..=self.workers.len()] {
            while done.0.load(SeqCst) != epoch {
                relax(&mut spins);
            }
        }
        drop(region);
        if let Err(panic) = own {
            resume_unwind(panic);
        }
        assert!(!shared.panicked.swap(false, SeqCst), "a task of the thread pool panicked");
    }

    /// Keeps the workers spinning, not sleeping, until the guard is dropped: for one pass over a network.
    pub fn hold(&self) -> Hold<'_> {
        self.shared.held.0.fetch_add(1, SeqCst);
        Hold { shared: &self.shared }
    }
}

impl std::fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadPool").field("threads", &self.threads()).finish()
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        self.shared.signal.0.epoch.fetch_add(1, SeqCst);
        for (thread, handle) in self.workers.drain(..) {
            thread.unpark();
            // A worker catches the panics of its tasks, so that joining cannot fail.
            let _ = handle.join();
        }
    }
}

/// While it lives, the pool's workers do not sleep.
pub struct Hold<'a> {
    shared: &'a Shared,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.shared.held.0.fetch_sub(1, SeqCst);
    }
}

impl Shared {
    fn new(threads: usize) -> Shared {
        Shared {
            signal: Padded(Signal { epoch: AtomicU32::new(0), job: UnsafeCell::new(None) }),
            done: (0..threads).map(|_| Padded(AtomicU32::new(0))).collect(),
            held: Padded(AtomicUsize::new(0)),
            asleep: (0..threads).map(|_| Padded(AtomicBool::new(false))).collect(),
            panicked: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        }
    }

    fn work(&self, index: usize) {
        let mut seen = 0;
        loop {
            seen = self.wait(index, seen);
            if self.stop.load(SeqCst) {
                return;
            }
            // SAFETY: written before `epoch` changed, and not again before this worker is done.
            if let Some(job) = unsafe { *self.signal.0.job.get() } {
                let run = || share(index, job.threads, job.tasks).for_each(job.task);
                if catch_unwind(AssertUnwindSafe(run)).is_err() {
                    self.panicked.store(true, SeqCst);
                }
            }
            self.done[index].0.store(seen, SeqCst);
        }
    }

    /// Waits until `epoch` is no longer `seen`; the new epoch.
    fn wait(&self, index: usize, seen: u32) -> u32 {
        let (mut spins, mut since) = (0, Instant::now());
        loop {
            let now = self.signal.0.epoch.load(SeqCst);
            if now != seen {
                return now;
            }
            relax(&mut spins);
            if !spins.is_multiple_of(64) {
                continue;
            }
            if self.held.0.load(SeqCst) != 0 {
                since = Instant::now();
            } else if since.elapsed() > SPIN {
                // `run` raises the epoch before it looks at `asleep`: one of the two sees the other.
                self.asleep[index].0.store(true, SeqCst);
                if self.signal.0.epoch.load(SeqCst) == seen {
                    std::thread::park();
                }
                self.asleep[index].0.store(false, SeqCst);
            }
        }
    }
}

/// The contiguous share of thread `index`.
fn share(index: usize, threads: usize, tasks: usize) -> std::ops::Range<usize> {
    index * tasks / threads..(index + 1) * tasks / threads
}

/// One turn of a spinning loop; after a while it gives the processor away now and then, since the thread that is
/// waited for may need it.
fn relax(spins: &mut u32) {
    *spins = spins.wrapping_add(1);
    if *spins >= 1024 && spins.is_multiple_of(64) { std::thread::yield_now() } else { std::hint::spin_loop() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once() {
        for threads in 1..4 {
            let pool = ThreadPool::new(threads);
            for tasks in [0, 1, 2, 3, 7, 100] {
                let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                for _ in 0..50 {
                    pool.run(tasks, &|i| {
                        counts[i].fetch_add(1, SeqCst);
                    });
                }
                assert!(counts.iter().all(|c| c.load(SeqCst) == 50), "{threads} threads, {tasks} tasks");
            }
        }
    }

    #[test]
    fn sleeping_workers_wake() {
        let pool = ThreadPool::new(2);
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(2));
            let sum = AtomicUsize::new(0);
            let hold = pool.hold();
            pool.run(10, &|i| {
                sum.fetch_add(i, SeqCst);
            });
            drop(hold);
            assert_eq!(sum.load(SeqCst), 45);
        }
    }

    #[test]
    fn a_region_inside_a_region_runs_inline() {
        let pool = ThreadPool::new(2);
        let count = AtomicUsize::new(0);
        pool.run(4, &|_| {
            pool.run(3, &|_| {
                count.fetch_add(1, SeqCst);
            })
        });
        assert_eq!(count.load(SeqCst), 12);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = ThreadPool::new(2);
        for bad in [0, 3] {
            let caught = catch_unwind(AssertUnwindSafe(|| pool.run(4, &|i| assert_ne!(i, bad))));
            assert!(caught.is_err());
            let count = AtomicUsize::new(0);
            pool.run(4, &|_| {
                count.fetch_add(1, SeqCst);
            });
            assert_eq!(count.load(SeqCst), 4);
        }
    }
}
