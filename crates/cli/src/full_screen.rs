//! Full screen of `weir load --tui`: a thread that draws and reads keys, and restores the terminal in every
//! case.

#![expect(clippy::disallowed_types, reason = "two threads of the terminal share the view; no core does")]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use load::control::{RateControl, STEP_UP};
use load::observer::{RunObserver, SecondLatencies};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use record::run::Interval;
use rt::clock::now_ns;

use crate::output::is_coloured;
use crate::output::load_screen::{LoadView, draw_load};

/// Interval at which the screen is drawn without a key.
const DRAW_INTERVAL: Duration = Duration::from_millis(250);

/// The screen while it is shown.
#[derive(Debug)]
pub(crate) struct FullScreen {
    shared: Arc<SharedScreen>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Debug)]
struct SharedScreen {
    view: Mutex<LoadView>,
    control: Arc<RateControl>,
    /// Start of the load by the clock; 0 before it.
    start_ns: std::sync::atomic::AtomicU64,
    is_over: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScreenKey {
    /// Drain, as Ctrl-C does.
    End,
    Faster,
    Slower,
    Pause,
    Restore,
}

impl FullScreen {
    /// Shows the screen.
    ///
    /// # Errors
    /// The terminal cannot be set up.
    pub(crate) fn start(view: LoadView, control: Arc<RateControl>) -> io::Result<Self> {
        let shared = Arc::new(SharedScreen {
            view: Mutex::new(view),
            control,
            start_ns: std::sync::atomic::AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let mut terminal = ratatui::try_init()?;
        let shown = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("screen".to_owned()).spawn(move || {
            let result = run(&mut terminal, &shown);
            ratatui::restore();
            result
        });
        let thread = thread.inspect_err(|_| ratatui::restore())?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl RunObserver for FullScreen {
    fn on_start(&mut self, start_ns: u64) {
        self.shared.start_ns.store(start_ns, Ordering::Relaxed);
    }

    fn on_window_start(&mut self) {}

    fn on_load_end(&mut self) {}

    fn on_second(&mut self, interval: &mut Interval, latencies: &SecondLatencies) {
        lock(&self.shared.view).add(interval, &latencies.response);
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            warn!("weir: --tui: {error}");
        }
    }
}

fn lock(view: &Mutex<LoadView>) -> MutexGuard<'_, LoadView> {
    view.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(terminal: &mut ratatui::DefaultTerminal, shared: &SharedScreen) -> io::Result<()> {
    while !shared.is_over.load(Ordering::Relaxed) {
        let start_ns = shared.start_ns.load(Ordering::Relaxed);
        let elapsed_ns = if start_ns == 0 { 0 } else { now_ns().saturating_sub(start_ns) };
        {
            let mut view = lock(&shared.view);
            view.factor = view.factor.map(|_| shared.control.factor());
            terminal.draw(|frame| draw_load(frame, &view, elapsed_ns as f64 / 1e9, is_coloured()))?;
        }
        if !event::poll(DRAW_INTERVAL)? {
            continue;
        }
        let is_adjustable = lock(&shared.view).factor.is_some();
        match parse_key(&event::read()?) {
            // The handler of the signal drains; it also reports what it waits for.
            Some(ScreenKey::End) => {
                let _ =
                    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::INT);
            }
            Some(ScreenKey::Faster) if is_adjustable => shared.control.scale(STEP_UP, now_ns()),
            Some(ScreenKey::Slower) if is_adjustable => shared.control.scale(1.0 / STEP_UP, now_ns()),
            Some(ScreenKey::Pause) if is_adjustable => shared.control.set(0.0, now_ns()),
            Some(ScreenKey::Restore) if is_adjustable => shared.control.set(1.0, now_ns()),
            _ => {}
        }
    }
    Ok(())
}

fn parse_key(event: &Event) -> Option<ScreenKey> {
    let Event::Key(key) = event else { return None };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(ScreenKey::End),
        KeyCode::Char('q') => Some(ScreenKey::End),
        KeyCode::Char('+' | '=') | KeyCode::Up => Some(ScreenKey::Faster),
        KeyCode::Char('-') | KeyCode::Down => Some(ScreenKey::Slower),
        KeyCode::Char('0') => Some(ScreenKey::Pause),
        KeyCode::Char('1') => Some(ScreenKey::Restore),
        _ => None,
    }
}
