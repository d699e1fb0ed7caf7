//! Measures look-ups of a cache that threads share: `look_up [THREADS] [KEYS]`. With one key, all threads want the same
//! object; with many, they meet by chance only. Prints the CPU time of a look-up, with the hash of its key.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use cache::{
    BeginFill, Cache, CachePlan, CacheRules, Lookup, RequestPolicy, ResponseTimes, StoredHead, UnixTime,
};
use rustix::time::{ClockId, clock_gettime};
use wire::Header;

const LOOK_UPS: u64 = 2_000_000;
const NOW: UnixTime = UnixTime::from_seconds(1_800_000_000);

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let (Ok(threads), Ok(keys)) = (arguments.next().unwrap_or(Ok(2)), arguments.next().unwrap_or(Ok(10_000)))
    else {
        eprintln!("usage: look_up [THREADS] [KEYS]");
        return ExitCode::from(2);
    };
    let plan = CachePlan {
        name: "example".to_owned(),
        memory_bytes_max: 1 << 30,
        object_bytes_max: 1 << 20,
        waiters_max: 100,
        fills_max: 100,
        disk: None,
    };
    let cache = match Cache::new(plan) {
        Ok(cache) => cache,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let texts: Arc<[String]> =
        (0..keys.max(1)).map(|number| format!("app|https|www.example.org/assets/{number}.js")).collect();
    texts.iter().for_each(|text| fill(&cache, text));
    let run = |number| {
        let (cache, texts) = (Arc::clone(&cache), Arc::clone(&texts));
        thread::spawn(move || look_up(&cache, &texts, number))
    };
    let running: Vec<_> = (0..threads).map(run).collect();
    for (number, thread) in running.into_iter().enumerate() {
        if let Ok((hits, cpu_ns)) = thread.join() {
            let each_ns = cpu_ns as f64 / LOOK_UPS as f64;
            println!("thread {number}: {each_ns:.0} ns of CPU time, {hits} of {LOOK_UPS} are hits");
        }
    }
    ExitCode::SUCCESS
}

fn fill(cache: &Arc<Cache>, text: &str) {
    let headers = [Header { name: "Cache-Control", value: b"max-age=1000" }];
    let times = ResponseTimes { requested_at: NOW, received_at: NOW };
    let request = RequestPolicy::parse("GET", &[], false);
    let storable = cache::decide_storing(&request, 200, &headers, times, &CacheRules::default());
    let BeginFill::Leader(mut fill) = cache.begin_fill(&cache.key(text.as_bytes()), &[], true) else {
        return;
    };
    if let Ok(storable) = storable
        && fill.store_head(StoredHead::new(200, &headers), storable, &[], None).is_ok()
        && fill.push(&[0; 1000]).is_ok()
    {
        let _ = fill.finish();
    }
}

/// Returns the hits and the CPU time.
fn look_up(cache: &Cache, texts: &[String], seed: u64) -> (u64, u64) {
    let headers = [Header { name: "Accept-Encoding", value: b"gzip" }];
    let mut random = fastrand::Rng::with_seed(seed);
    let start_ns = thread_cpu_ns();
    let mut hits = 0;
    for _ in 0..LOOK_UPS {
        let text = &texts[random.usize(0..texts.len())];
        hits +=
            u64::from(matches!(cache.look_up(&cache.key(text.as_bytes()), &headers, NOW), Lookup::Hit(_)));
    }
    (hits, thread_cpu_ns() - start_ns)
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
