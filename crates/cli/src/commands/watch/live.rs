//! The full screen: waits for keys and samples, and restores the terminal in every case.

use std::io;
use std::time::Duration;

use diagnose::alerts::{LIVE_WINDOWS, Screen, screen};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use record::observed::MachineObservation;
use report::text::watch::Glyphs;
use rt::clock::now_ns;
use rt::drain::{DrainStage, DrainWatch};

use super::{LastShown, WatchView};
use crate::output;
use crate::output::watch_screen::{DisplayOptions, Key, KeyAction, ViewState, draw};

/// Interval at which it polls for the end; a key takes effect at once.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Rows per turn of the wheel or per arrow key.
const SCROLL_ROWS: i32 = 1;

/// Guard that restores the terminal, also on failure. The hook of `ratatui::try_init` handles a
/// panic and its text.
struct TerminalGuard(DefaultTerminal);

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the observation until a key, a signal or the time ends it.
pub(super) fn run(view: &WatchView<'_>, end_ns: u64, stop: &DrainWatch) -> io::Result<()> {
    let mut terminal = TerminalGuard(ratatui::try_init()?);
    let display = DisplayOptions { glyphs: Glyphs::from_locale(), colour: output::is_coloured() };
    let mut position = ViewState::default();
    let mut shown = ScreenContent::new(view.latest_observation());
    let mut last_shown = LastShown::default();
    let mut page_rows = 1;
    let mut stale = true;
    while stop.stage() == DrainStage::Running && now_ns() < end_ns {
        if stale {
            let ScreenContent { observed, screen } = &shown;
            terminal.0.draw(|frame| page_rows = draw(frame, observed, screen, &mut position, display))?;
        }
        stale = false;
        if event::poll(POLL_INTERVAL)? {
            match handle_event(&event::read()?, &mut position, page_rows) {
                KeyAction::Quit => break,
                KeyAction::Continue => stale = true,
            }
        }
        let newer = if position.paused { None } else { view.newer_observation(&mut last_shown) };
        if let Some(observed) = newer {
            shown = ScreenContent::new(observed);
            stale = true;
        }
    }
    Ok(())
}

struct ScreenContent {
    observed: MachineObservation,
    screen: Screen,
}

impl ScreenContent {
    fn new(observed: MachineObservation) -> Self {
        let screen = screen(&observed, LIVE_WINDOWS);
        Self { observed, screen }
    }
}

fn handle_event(event: &Event, position: &mut ViewState, page_rows: usize) -> KeyAction {
    let Event::Key(key) = event else {
        // Another event, such as a new size, redraws everything.
        return KeyAction::Continue;
    };
    parse_key(key).map_or(KeyAction::Continue, |key| position.handle_key(key, page_rows))
}

fn parse_key(key: &KeyEvent) -> Option<Key> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c' | 'd') if control => Some(Key::Quit),
        KeyCode::Char('q') => Some(Key::Quit),
        KeyCode::Tab | KeyCode::Right => Some(Key::Next),
        KeyCode::BackTab | KeyCode::Left => Some(Key::Previous),
        KeyCode::Down => Some(Key::Scroll(SCROLL_ROWS)),
        KeyCode::Up => Some(Key::Scroll(-SCROLL_ROWS)),
        KeyCode::PageDown => Some(Key::PageDown),
        KeyCode::PageUp => Some(Key::PageUp),
        KeyCode::Home => Some(Key::Home),
        KeyCode::End => Some(Key::End),
        KeyCode::Char('p' | ' ') => Some(Key::Pause),
        KeyCode::Char('?' | 'h') => Some(Key::Help),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_match_the_help() {
        let plain = |code| parse_key(&KeyEvent::new(code, KeyModifiers::NONE));
        let control = |code| parse_key(&KeyEvent::new(code, KeyModifiers::CONTROL));
        assert_eq!(plain(KeyCode::Char('q')), Some(Key::Quit));
        assert_eq!(control(KeyCode::Char('c')), Some(Key::Quit));
        assert_eq!(plain(KeyCode::Char('c')), None);
        assert_eq!(plain(KeyCode::Tab), Some(Key::Next));
        assert_eq!(plain(KeyCode::Char('?')), Some(Key::Help));
        assert_eq!(plain(KeyCode::Char('p')), Some(Key::Pause));
    }
}
