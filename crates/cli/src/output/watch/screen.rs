//! The full screen: a title, tabs, rows that scroll, keys. What a key does is decided here without a
//! terminal; drawing goes to any backend, so that tests can look at it.

use lab::marks::{Mark, Screen, Section};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style as Colours};
use ratatui::text::{Line, Span as Drawn};
use ratatui::widgets::Paragraph;
use record::observed::Observed;

use super::layout::{Look, Overflow, help, rows};
use super::text::title;
use super::{Glyphs, Row, Style, cut};

/// Keys, as the help has them.
pub(crate) const KEYS: &[(&str, &str)] = &[
    ("q, Ctrl-C", "quit"),
    ("tab, right", "next section; shift-tab, left: the one before"),
    ("down, up", "scroll; also page down, page up, home, end"),
    ("p, space", "hold the screen still, and go on"),
    ("?", "this page, and back"),
];

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Quit,
    Next,
    Previous,
    /// Rows down, or up.
    Scroll(i32),
    PageDown,
    PageUp,
    Home,
    End,
    Pause,
    Help,
}

/// What the screen shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// 0 is all sections; the others follow [`Section::ALL`].
    pub(crate) tab: usize,
    /// Rows above the first that is shown.
    pub(crate) scroll: usize,
    /// Whether it is held still.
    pub(crate) paused: bool,
    /// Whether it shows the help.
    pub(crate) help: bool,
}

/// Whether to go on after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    GoOn,
    Quit,
}

impl Position {
    /// What a key does; `page` is the number of rows that are shown.
    pub(crate) fn key(&mut self, key: Key, page: usize) -> Next {
        let tabs = Section::ALL.len() + 1;
        match key {
            Key::Quit => return Next::Quit,
            Key::Next => self.turn_to((self.tab + 1) % tabs),
            Key::Previous => self.turn_to((self.tab + tabs - 1) % tabs),
            Key::Scroll(rows) => self.scroll = self.scroll.saturating_add_signed(rows as isize),
            Key::PageDown => self.scroll += page.max(1),
            Key::PageUp => self.scroll = self.scroll.saturating_sub(page.max(1)),
            Key::Home => self.scroll = 0,
            // Drawing brings it back to the last page.
            Key::End => self.scroll = usize::MAX / 2,
            Key::Pause => self.paused = !self.paused,
            Key::Help => {
                self.help = !self.help;
                self.scroll = 0;
            }
        }
        Next::GoOn
    }

    fn turn_to(&mut self, tab: usize) {
        *self = Self { tab, scroll: 0, help: false, ..*self };
    }

    fn section(self) -> Option<Section> {
        self.tab.checked_sub(1).and_then(|at| Section::ALL.get(at)).copied()
    }
}

/// What is drawn beside the rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dress {
    pub(crate) glyphs: Glyphs,
    pub(crate) colour: bool,
}

/// Draws everything; keeps the scroll within the rows, and returns the rows of a page.
pub(crate) fn draw(
    frame: &mut Frame<'_>,
    observed: &Observed,
    screen: &Screen,
    position: &mut Position,
    dress: Dress,
) -> usize {
    let areas = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ]);
    let [top, tabs, body, bottom] = areas.areas(frame.area());
    let width = usize::from(body.width);
    let look = Look {
        width,
        glyphs: dress.glyphs,
        only: position.section(),
        overflow: if position.tab == 0 { Overflow::LeftOut } else { Overflow::Below },
        now_rows_max: if position.tab == 0 { usize::from(body.height) / 3 } else { usize::MAX },
    };
    let rows = if position.help { help(KEYS, look) } else { rows(screen, look) };
    let page = usize::from(body.height);
    position.scroll = position.scroll.min(rows.len().saturating_sub(page));
    let shown: Vec<Line<'_>> =
        rows.iter().skip(position.scroll).take(page).map(|row| line(row, dress.colour)).collect();
    frame.render_widget(Paragraph::new(title_line(observed, screen, width, dress)), top);
    frame.render_widget(Paragraph::new(tab_line(*position, width, dress)), tabs);
    frame.render_widget(Paragraph::new(shown), body);
    frame.render_widget(Paragraph::new(key_line(*position, rows.len(), page, width)), bottom);
    page
}

fn title_line(observed: &Observed, screen: &Screen, width: usize, dress: Dress) -> Line<'static> {
    let style = match screen.mark {
        Mark::Calm => colours(Style::Heading, dress.colour),
        mark => colours(Style::Marked(mark), dress.colour).add_modifier(Modifier::BOLD),
    };
    Line::styled(cut(&title(observed), width), style)
}

fn tab_line(position: Position, width: usize, dress: Dress) -> Line<'static> {
    let names = ["all"].into_iter().chain(Section::ALL.iter().map(|section| section.title()));
    let mut line = Vec::new();
    let mut used = 0;
    for (at, name) in names.enumerate() {
        let text = format!(" {name} ");
        used += super::width(&text);
        if used > width {
            break;
        }
        let chosen = at == position.tab && !position.help;
        let style = match chosen {
            true => Colours::default().add_modifier(Modifier::REVERSED),
            false => colours(Style::Dim, dress.colour),
        };
        line.push(Drawn::styled(text, style));
    }
    Line::from(line)
}

fn key_line(position: Position, rows: usize, page: usize, width: usize) -> Line<'static> {
    let last = (position.scroll + page).min(rows);
    let where_ = format!("rows {}-{last} of {rows}", position.scroll + 1);
    let paused = if position.paused { "HELD STILL  " } else { "" };
    let text = format!("{paused}q quit  tab section  up/down scroll  p hold  ? help  {where_}");
    Line::styled(cut(&text, width), Colours::default().add_modifier(Modifier::REVERSED))
}

fn line(row: &Row, colour: bool) -> Line<'static> {
    let spans =
        row.iter().map(|span| Drawn::styled(span.text.clone(), colours(span.style, colour)));
    Line::from(spans.collect::<Vec<_>>())
}

/// Without colours, what is marked is bold and the rest tells itself by its characters.
fn colours(style: Style, colour: bool) -> Colours {
    let plain = Colours::default();
    let tint = |tint: Color| if colour { plain.fg(tint) } else { plain };
    match style {
        Style::Plain | Style::Marked(Mark::Calm) => plain,
        Style::Dim => plain.add_modifier(Modifier::DIM),
        Style::Heading => plain.add_modifier(Modifier::BOLD),
        Style::Marked(Mark::Notice) => tint(Color::Yellow).add_modifier(Modifier::BOLD),
        Style::Marked(Mark::Alarm) => tint(Color::Red).add_modifier(Modifier::BOLD),
        Style::User | Style::Share => tint(Color::Green),
        Style::System => tint(Color::Blue),
        Style::Interrupt => tint(Color::Magenta),
        Style::Steal => tint(Color::Cyan),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::marks::{LIVE, screen};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use record::observed::{CpuUse, Sample};

    const DRESS: Dress = Dress { glyphs: Glyphs::Blocks, colour: false };

    fn observed() -> Observed {
        let cpu = |cpu| CpuUse { cpu, user: 0.3, system: 0.1, ..CpuUse::default() };
        let sample = Sample {
            time_s: 1.0,
            length_s: 1.0,
            cpus: (0..40).map(cpu).collect(),
            ..Sample::default()
        };
        Observed { host: "here".to_owned(), cpus: 40, samples: vec![sample], ..Observed::default() }
    }

    /// The text of the screen, a string a row.
    fn drawn(width: u16, height: u16, position: &mut Position) -> Vec<String> {
        let observed = observed();
        let screen = screen(&observed, LIVE);
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let frame = |frame: &mut Frame<'_>| {
            draw(frame, &observed, &screen, position, DRESS);
        };
        terminal.draw(frame).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(row).collect()
    }

    #[test]
    fn it_draws_at_any_size() {
        for (width, height) in [(1, 1), (3, 9), (20, 3), (80, 24), (120, 40), (200, 60)] {
            let rows = drawn(width, height, &mut Position::default());
            assert!(rows[0].starts_with(['w', '~']), "{rows:#?}");
        }
        let rows = drawn(80, 24, &mut Position::default());
        assert!(rows[0].starts_with("weir watch   here, 40 processors"), "{rows:#?}");
        assert!(rows[2].starts_with("── now ──"), "{rows:#?}");
        assert!(rows[23].contains("q quit") && rows[23].contains("rows 1-21 of 48"), "{rows:#?}");
    }

    #[test]
    fn it_scrolls_to_its_end_and_not_beyond() {
        let mut position = Position::default();
        assert_eq!(position.key(Key::End, 21), Next::GoOn);
        let rows = drawn(80, 24, &mut position);
        assert!(rows[23].contains("rows 28-48 of 48") && position.scroll == 27, "{rows:#?}");
        position.key(Key::PageUp, 21);
        position.key(Key::Scroll(-1), 21);
        position.key(Key::Scroll(-9), 21);
        assert_eq!(position.scroll, 0);
    }

    #[test]
    fn tabs_turn_around_and_help_comes_and_goes() {
        let mut position = Position::default();
        position.key(Key::Previous, 1);
        assert_eq!(position.section(), Some(Section::NotObservable));
        position.key(Key::Next, 1);
        position.key(Key::Next, 1);
        assert_eq!(position.section(), Some(Section::Now));
        position.key(Key::Help, 1);
        let rows = drawn(80, 24, &mut position);
        assert!(rows[3].contains("q, Ctrl-C"), "{rows:#?}");
        position.key(Key::Next, 1);
        assert!(!position.help && position.section() == Some(Section::Processors));
        position.key(Key::Pause, 1);
        assert!(drawn(80, 24, &mut position)[23].starts_with("HELD STILL"));
        assert_eq!(position.key(Key::Quit, 1), Next::Quit);
    }

    #[test]
    fn colours_are_left_out_when_they_are_not_wanted() {
        let styles = [Style::Marked(Mark::Alarm), Style::User, Style::Steal, Style::Heading];
        assert!(styles.iter().all(|style| colours(*style, false).fg.is_none()));
        assert_eq!(colours(Style::Marked(Mark::Alarm), true).fg, Some(Color::Red));
    }
}
