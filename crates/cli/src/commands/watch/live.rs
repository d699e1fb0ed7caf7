//! The full screen: waits for keys and samples, and gives the terminal back whatever happens.

use std::io;
use std::time::Duration;

use lab::marks::{LIVE, Screen, screen};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use record::observed::Observed;
use rt::clock::now_ns;
use rt::drain::{DrainWatch, Stage};

use super::{Looks, Seen};
use crate::output;
use crate::output::watch::Glyphs;
use crate::output::watch::screen::{Dress, Key, Next, Position, draw};

/// How often the end is looked for; a key is seen at once.
const PATIENCE: Duration = Duration::from_millis(200);
/// Rows of a turn of the wheel, or of an arrow key.
const SCROLL_ROWS: i32 = 1;

/// Gives the terminal back, also when something fails. A panic and its text are taken care of by
/// the hook that `ratatui::try_init` sets.
struct Taken(DefaultTerminal);

impl Drop for Taken {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows what is watched until a key, a signal or the time ends it.
pub(super) fn run(looks: &Looks<'_>, end_ns: u64, stop: &DrainWatch) -> io::Result<()> {
    let mut terminal = Taken(ratatui::try_init()?);
    let dress = Dress { glyphs: Glyphs::of_locale(), colour: output::colour() };
    let mut position = Position::default();
    let mut shown = Shown::new(looks.latest());
    let mut seen = Seen::default();
    let mut page = 1;
    let mut stale = true;
    while stop.stage() == Stage::Running && now_ns() < end_ns {
        if stale {
            let Shown { observed, screen } = &shown;
            terminal.0.draw(|frame| page = draw(frame, observed, screen, &mut position, dress))?;
        }
        stale = false;
        if event::poll(PATIENCE)? {
            match act(&event::read()?, &mut position, page) {
                Next::Quit => break,
                Next::GoOn => stale = true,
            }
        }
        let newer = if position.paused { None } else { looks.newer(&mut seen) };
        if let Some(observed) = newer {
            shown = Shown::new(observed);
            stale = true;
        }
    }
    Ok(())
}

/// What is on the screen.
struct Shown {
    observed: Observed,
    screen: Screen,
}

impl Shown {
    fn new(observed: Observed) -> Self {
        let screen = screen(&observed, LIVE);
        Self { observed, screen }
    }
}

fn act(event: &Event, position: &mut Position, page: usize) -> Next {
    let Event::Key(key) = event else {
        // A new size, for instance: everything is drawn again.
        return Next::GoOn;
    };
    key_of(key).map_or(Next::GoOn, |key| position.key(key, page))
}

fn key_of(key: &KeyEvent) -> Option<Key> {
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
    fn keys_are_what_the_help_says() {
        let plain = |code| key_of(&KeyEvent::new(code, KeyModifiers::NONE));
        let control = |code| key_of(&KeyEvent::new(code, KeyModifiers::CONTROL));
        assert_eq!(plain(KeyCode::Char('q')), Some(Key::Quit));
        assert_eq!(control(KeyCode::Char('c')), Some(Key::Quit));
        assert_eq!(plain(KeyCode::Char('c')), None);
        assert_eq!(plain(KeyCode::Tab), Some(Key::Next));
        assert_eq!(plain(KeyCode::Char('?')), Some(Key::Help));
        assert_eq!(plain(KeyCode::Char('p')), Some(Key::Pause));
    }
}
