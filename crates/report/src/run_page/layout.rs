//! Widths of drawings, figures with a drawing for each width, and shortened texts.

use maud::{Markup, html};

use crate::charts::LegendEntry;
use crate::page::figure::legend;
use crate::plot::{Frame, Svg, shortened};

/// Width of a drawing, with the edges of its plots.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Layout {
    pub(super) width: f64,
    left: f64,
    right: f64,
    /// Number of ticks of a horizontal axis.
    pub(super) ticks: usize,
}

/// Drawings of screens from 720 px, and of a phone.
const WIDE: Layout = Layout { width: 720.0, left: 66.0, right: 708.0, ticks: 8 };
const NARROW: Layout = Layout { width: 340.0, left: 58.0, right: 334.0, ticks: 4 };

impl Layout {
    /// Returns a frame of this width: the space above the plot, and its height.
    pub(super) fn frame(&self, above: f64, height: f64) -> Frame {
        Frame::new(above, height).within(self.left, self.right)
    }
}

/// Chart of the page, drawn for both widths.
#[derive(Debug)]
pub(super) struct Figure {
    id: &'static str,
    title: &'static str,
    caption: String,
    legend: Vec<LegendEntry>,
    wide: Svg,
    narrow: Svg,
}

impl Figure {
    /// Draws a chart for both widths; `None` if it has no data.
    pub(super) fn draw(
        id: &'static str,
        title: &'static str,
        caption: &str,
        draw: impl Fn(&Layout) -> Option<Svg>,
    ) -> Option<Self> {
        let (wide, narrow) = (draw(&WIDE)?, draw(&NARROW)?);
        Some(Self { id, title, caption: caption.to_owned(), legend: Vec::new(), wide, narrow })
    }

    /// Sets the legend: names of the series in their order.
    pub(super) fn legend<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let entries = names.into_iter().enumerate();
        self.legend = entries.map(|(number, name)| LegendEntry { number, name: name.to_owned() }).collect();
        self
    }

    pub(super) fn markup(&self) -> Markup {
        let Self { id, title, caption, wide, narrow, .. } = self;
        html! {
            figure id=(id) {
                figcaption { h3 { (title) } p { (caption) } }
                (legend(&self.legend))
                div.wide { (wide.markup(&format!("{id}-wide"))) }
                div.narrow { (narrow.markup(&format!("{id}-narrow"))) }
            }
        }
    }
}

/// Bounds a sentence or a command without cutting it: beyond this number of characters only its whole first sentences
/// or words remain, and a note that the record has the rest.
pub(super) fn prose(text: &str, chars_max: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(chars_max) else { return text.to_owned() };
    let head = &text[..end];
    let kept = match head.rfind(". ") {
        Some(at) => &head[..=at],
        None => head.rfind(char::is_whitespace).map_or("", |at| &head[..at]),
    };
    format!("{kept} (The rest is in the record.)").trim_start().to_owned()
}

/// Shortens a name or a label of a record to this number of characters; sentences are [`prose`].
pub(super) fn short(text: &str, chars_max: usize) -> String {
    shortened(text, chars_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_ends_after_a_sentence_or_a_word() {
        assert_eq!(prose("One. Two.", 20), "One. Two.");
        assert_eq!(prose("One. Two three.", 8), "One. (The rest is in the record.)");
        assert_eq!(prose("ONE two three", 9), "ONE two (The rest is in the record.)");
        assert_eq!(prose(&"x".repeat(30), 9), "(The rest is in the record.)");
    }
}
