//! The full screen: a title, tabs, rows that scroll, keys. Key handling needs no terminal, and
//! drawing accepts any backend, so that tests can check both.

use diagnose::alerts::{Screen, ScreenSection, Severity};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style as Colours};
use ratatui::text::{Line, Span as Drawn};
use ratatui::widgets::Paragraph;
use record::observed::MachineObservation;
use report::text::watch::layout::{LayoutOptions, Overflow, help, rows};
use report::text::watch::text::title;
use report::text::watch::{self, Glyphs, Style, StyledRow, truncate};

/// Keys, in the wording of the help.
pub(crate) const KEYS: &[(&str, &str)] = &[
    ("q, Ctrl-C", "quit"),
    ("tab, right", "next section; shift-tab, left: previous section"),
    ("down, up", "scroll; also page down, page up, home, end"),
    ("p, space", "pause or resume the screen"),
    ("?", "this page, and back"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Quit,
    Next,
    Previous,
    /// Number of rows down; negative: up.
    Scroll(i32),
    PageDown,
    PageUp,
    Home,
    End,
    Pause,
    Help,
}

/// View that the screen shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ViewState {
    /// 0 is all sections; the others follow `Section::ALL`.
    pub(crate) tab: usize,
    /// Number of rows above the first visible one.
    pub(crate) scroll: usize,
    pub(crate) paused: bool,
    pub(crate) help: bool,
}

/// Next action after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyAction {
    Continue,
    Quit,
}

impl ViewState {
    /// Applies a key; `page` is the number of visible rows.
    pub(crate) fn handle_key(&mut self, key: Key, page: usize) -> KeyAction {
        let tabs = ScreenSection::ALL.len() + 1;
        match key {
            Key::Quit => return KeyAction::Quit,
            Key::Next => self.show_tab((self.tab + 1) % tabs),
            Key::Previous => self.show_tab((self.tab + tabs - 1) % tabs),
            Key::Scroll(rows) => self.scroll = self.scroll.saturating_add_signed(rows as isize),
            Key::PageDown => self.scroll += page.max(1),
            Key::PageUp => self.scroll = self.scroll.saturating_sub(page.max(1)),
            Key::Home => self.scroll = 0,
            // Drawing limits it to the last page.
            Key::End => self.scroll = usize::MAX / 2,
            Key::Pause => self.paused = !self.paused,
            Key::Help => {
                self.help = !self.help;
                self.scroll = 0;
            }
        }
        KeyAction::Continue
    }

    fn show_tab(&mut self, tab: usize) {
        *self = Self { tab, scroll: 0, help: false, ..*self };
    }

    fn section(self) -> Option<ScreenSection> {
        self.tab.checked_sub(1).and_then(|at| ScreenSection::ALL.get(at)).copied()
    }
}

/// Display options beside the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DisplayOptions {
    pub(crate) glyphs: Glyphs,
    pub(crate) colour: bool,
}

/// Draws everything. Limits the scroll position to the rows, and returns the rows of a page.
pub(crate) fn draw(
    frame: &mut Frame<'_>,
    observed: &MachineObservation,
    screen: &Screen,
    position: &mut ViewState,
    display: DisplayOptions,
) -> usize {
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ]);
    let [top, tabs, body, bottom] = areas.areas(frame.area());
    let width = usize::from(body.width);
    let options = LayoutOptions {
        width,
        glyphs: display.glyphs,
        section: position.section(),
        overflow: if position.tab == 0 { Overflow::Hide } else { Overflow::Wrap },
        top_rows_max: if position.tab == 0 { usize::from(body.height) / 3 } else { usize::MAX },
    };
    let rows = if position.help { help(KEYS, options) } else { rows(screen, options) };
    let page = usize::from(body.height);
    position.scroll = position.scroll.min(rows.len().saturating_sub(page));
    let shown: Vec<Line<'_>> =
        rows.iter().skip(position.scroll).take(page).map(|row| tui_line(row, display.colour)).collect();
    frame.render_widget(Paragraph::new(title_line(observed, screen, width, display)), top);
    frame.render_widget(Paragraph::new(tab_line(*position, width, display)), tabs);
    frame.render_widget(Paragraph::new(shown), body);
    frame.render_widget(Paragraph::new(key_line(*position, rows.len(), page, width)), bottom);
    page
}

fn title_line(
    observed: &MachineObservation,
    screen: &Screen,
    width: usize,
    display: DisplayOptions,
) -> Line<'static> {
    let style = match screen.severity {
        Severity::Normal => tui_style(Style::Heading, display.colour),
        mark => tui_style(Style::Alert(mark), display.colour).add_modifier(Modifier::BOLD),
    };
    Line::styled(truncate(&title(observed), width), style)
}

fn tab_line(position: ViewState, width: usize, display: DisplayOptions) -> Line<'static> {
    let names = ["all"].into_iter().chain(ScreenSection::ALL.iter().map(|section| section.title()));
    let mut line = Vec::new();
    let mut used = 0;
    for (at, name) in names.enumerate() {
        let text = format!(" {name} ");
        used += watch::width(&text);
        if used > width {
            break;
        }
        let is_selected = at == position.tab && !position.help;
        let style = match is_selected {
            true => Colours::default().add_modifier(Modifier::REVERSED),
            false => tui_style(Style::Dim, display.colour),
        };
        line.push(Drawn::styled(text, style));
    }
    Line::from(line)
}

fn key_line(position: ViewState, rows: usize, page: usize, width: usize) -> Line<'static> {
    let last = (position.scroll + page).min(rows);
    let range = format!("rows {}-{last} of {rows}", position.scroll + 1);
    let paused = if position.paused { "PAUSED  " } else { "" };
    let text = format!("{paused}q quit  tab section  up/down scroll  p pause  ? help  {range}");
    Line::styled(truncate(&text, width), Colours::default().add_modifier(Modifier::REVERSED))
}

fn tui_line(row: &StyledRow, colour: bool) -> Line<'static> {
    let spans = row.iter().map(|span| Drawn::styled(span.text.clone(), tui_style(span.style, colour)));
    Line::from(spans.collect::<Vec<_>>())
}

/// Converts a style. Without colours, marks are bold and the other styles differ by their
/// characters.
fn tui_style(style: Style, colour: bool) -> Colours {
    let plain = Colours::default();
    let tint = |tint: Color| if colour { plain.fg(tint) } else { plain };
    match style {
        Style::Plain | Style::Alert(Severity::Normal) => plain,
        Style::Dim => plain.add_modifier(Modifier::DIM),
        Style::Heading => plain.add_modifier(Modifier::BOLD),
        Style::Alert(Severity::Notice) => tint(Color::Yellow).add_modifier(Modifier::BOLD),
        Style::Alert(Severity::Alarm) => tint(Color::Red).add_modifier(Modifier::BOLD),
        Style::User | Style::Fraction => tint(Color::Green),
        Style::System => tint(Color::Blue),
        Style::Interrupt => tint(Color::Magenta),
        Style::Steal => tint(Color::Cyan),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diagnose::alerts::{LIVE_WINDOWS, screen};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use record::observed::{CpuUse, MachineSample};

    const DISPLAY: DisplayOptions = DisplayOptions { glyphs: Glyphs::Blocks, colour: false };

    fn observed() -> MachineObservation {
        let cpu = |cpu| CpuUse { cpu, user: 0.3, system: 0.1, ..CpuUse::default() };
        let sample = MachineSample {
            time_s: 1.0,
            length_s: 1.0,
            cpus: (0..40).map(cpu).collect(),
            ..MachineSample::default()
        };
        MachineObservation {
            host: "here".to_owned(),
            cpus: 40,
            samples: vec![sample],
            ..MachineObservation::default()
        }
    }

    /// Returns the text of the screen, a string per row.
    fn drawn(width: u16, height: u16, position: &mut ViewState) -> Vec<String> {
        let observed = observed();
        let screen = screen(&observed, LIVE_WINDOWS);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let frame = |frame: &mut Frame<'_>| {
            draw(frame, &observed, &screen, position, DISPLAY);
        };
        terminal.draw(frame).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(row).collect()
    }

    #[test]
    fn it_draws_at_any_size() {
        for (width, height) in [(1, 1), (3, 9), (20, 3), (80, 24), (120, 40), (200, 60)] {
            let rows = drawn(width, height, &mut ViewState::default());
            assert!(rows[0].starts_with(['w', '~']), "{rows:#?}");
        }
        let rows = drawn(80, 24, &mut ViewState::default());
        assert!(rows[0].starts_with("weir watch   here, 40 CPUs"), "{rows:#?}");
        assert!(rows[2].starts_with("── now ──"), "{rows:#?}");
        assert!(rows[23].contains("q quit") && rows[23].contains("rows 1-21 of 48"), "{rows:#?}");
    }

    #[test]
    fn it_scrolls_to_its_end_and_not_beyond() {
        let mut position = ViewState::default();
        assert_eq!(position.handle_key(Key::End, 21), KeyAction::Continue);
        let rows = drawn(80, 24, &mut position);
        assert!(rows[23].contains("rows 28-48 of 48") && position.scroll == 27, "{rows:#?}");
        position.handle_key(Key::PageUp, 21);
        position.handle_key(Key::Scroll(-1), 21);
        position.handle_key(Key::Scroll(-9), 21);
        assert_eq!(position.scroll, 0);
    }

    #[test]
    fn tabs_turn_around_and_help_comes_and_goes() {
        let mut position = ViewState::default();
        position.handle_key(Key::Previous, 1);
        assert_eq!(position.section(), Some(ScreenSection::NotObservable));
        position.handle_key(Key::Next, 1);
        position.handle_key(Key::Next, 1);
        assert_eq!(position.section(), Some(ScreenSection::Now));
        position.handle_key(Key::Help, 1);
        let rows = drawn(80, 24, &mut position);
        assert!(rows[3].contains("q, Ctrl-C"), "{rows:#?}");
        position.handle_key(Key::Next, 1);
        assert!(!position.help && position.section() == Some(ScreenSection::Cpus));
        position.handle_key(Key::Pause, 1);
        assert!(drawn(80, 24, &mut position)[23].starts_with("PAUSED"));
        assert_eq!(position.handle_key(Key::Quit, 1), KeyAction::Quit);
    }

    #[test]
    fn disabled_colours_are_left_out() {
        let styles = [Style::Alert(Severity::Alarm), Style::User, Style::Steal, Style::Heading];
        assert!(styles.iter().all(|style| tui_style(*style, false).fg.is_none()));
        assert_eq!(tui_style(Style::Alert(Severity::Alarm), true).fg, Some(Color::Red));
    }
}
