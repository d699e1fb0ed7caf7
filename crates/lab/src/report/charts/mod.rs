//! The charts of a report: what a chart is, and the list of all of them in the order of the page.
//! Not for how a page holds them (figure, caption, legend, data): that is in [`super::page`].

mod blocks;
mod boxes;
mod curve;
pub(in crate::report) mod data;
mod environment;
mod flame;
mod forest;
mod functions;
mod headroom;
mod heat_map;
mod in_order;
mod latency;
mod over_time;
mod panel;
mod processors;
mod queues;
mod scaling;
mod stacks;
mod table;
mod typical;

use record::experiment::{Experiment, Plan};

use super::Raw;
use super::csv::Figures;
use super::svg::{NOISE, Svg};

pub(in crate::report) use data::{change, is_of_few, outcome};
pub(in crate::report) use forest::small as small_forest;
pub(in crate::report) use table::grid;

/// A chart, with all that a page says of it.
#[derive(Clone, Debug)]
pub(in crate::report) struct Chart {
    /// Its name: letters, digits and `-`, of its own within the page.
    pub(in crate::report) id: String,
    /// What it shows, in some words.
    pub(in crate::report) title: String,
    /// How to read it, in one sentence.
    pub(in crate::report) caption: String,
    /// What is shown, from top to bottom.
    pub(in crate::report) parts: Vec<Part>,
    /// The series that can be switched off, in the order of the legend; one alone gets no legend.
    pub(in crate::report) legend: Vec<Series>,
    /// What was left out, or what has to be known to believe it.
    pub(in crate::report) notes: Vec<String>,
    /// The figures behind it, in full.
    pub(in crate::report) figures: Figures,
}

/// A part of a chart.
#[derive(Clone, Debug)]
pub(in crate::report) enum Part {
    /// A heading of what follows: an arm, a load.
    Heading(String),
    /// A drawing.
    Drawing(Svg),
    /// A table that a person reads.
    Table(Table),
    /// In place of a drawing: why there is none.
    Empty(String),
}

/// A series in a legend. Marks belong to it by [`super::svg::Mark::series`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::report) struct Series {
    /// Its number, which is its colour too.
    pub(in crate::report) number: usize,
    /// Its name.
    pub(in crate::report) name: String,
}

/// A table that a person reads; the first column names the row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::report) struct Table {
    /// Heads of the columns.
    pub(in crate::report) columns: Vec<String>,
    /// Rows, as long as the columns are.
    pub(in crate::report) rows: Vec<Vec<Cell>>,
}

/// A cell of such a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::report) struct Cell {
    /// What stands there.
    pub(in crate::report) text: String,
    /// Whether it is a figure, which stands at the right.
    pub(in crate::report) figure: bool,
    /// A class of the style sheet, for what has to stand out: `good`, `bad`, `mono`.
    pub(in crate::report) class: Option<&'static str>,
}

impl Cell {
    /// Words.
    #[must_use]
    pub(in crate::report) fn words(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A figure with its unit, at the right; a dash where there is none.
    #[must_use]
    pub(in crate::report) fn figure(text: Option<String>) -> Self {
        Self { text: text.unwrap_or_else(|| "–".to_owned()), figure: true, class: None }
    }

    /// Sets the class.
    #[must_use]
    pub(in crate::report) fn class(mut self, class: &'static str) -> Self {
        self.class = Some(class);
        self
    }
}

impl Chart {
    /// A chart without parts.
    #[must_use]
    pub(in crate::report) fn new(id: &str, title: &str, caption: &str, figures: Figures) -> Self {
        Self {
            id: id.to_owned(),
            title: title.to_owned(),
            caption: caption.to_owned(),
            parts: Vec::new(),
            legend: Vec::new(),
            notes: Vec::new(),
            figures,
        }
    }

    /// A chart that has no data, and why: said instead of left out, so that nobody looks for it.
    #[must_use]
    pub(in crate::report) fn empty(id: &str, title: &str, caption: &str, why: &str) -> Self {
        let mut chart = Self::new(id, title, caption, Figures::default());
        chart.parts.push(Part::Empty(why.to_owned()));
        chart
    }

    /// Adds a table.
    #[must_use]
    pub(in crate::report) fn table(mut self, table: Table) -> Self {
        self.parts.push(Part::Table(table));
        self
    }

    /// Sets the legend.
    #[must_use]
    pub(in crate::report) fn legend(mut self, legend: Vec<Series>) -> Self {
        self.legend = legend;
        self
    }
}

/// The number of an arm's series, which is its colour in every chart: the place among the arms, without
/// the A/A arm, which is grey.
#[must_use]
pub(in crate::report) fn series_of(plan: &Plan, arm: &str) -> usize {
    let own = plan.arms.iter().filter(|arm| arm.again.is_none());
    own.enumerate().find(|(_, own)| own.name == arm).map_or(NOISE, |(index, _)| index)
}

/// The series of all arms, as a legend has them: by names.
#[must_use]
pub(in crate::report) fn arms_legend(plan: &Plan) -> Vec<Series> {
    let named = |arm: &record::experiment::Arm| {
        let name = match &arm.again {
            Some(again) => format!("{again} again (A/A)"),
            None => arm.name.clone(),
        };
        Series { number: series_of(plan, &arm.name), name }
    };
    plan.arms.iter().map(named).collect()
}

/// For tests of charts that are made of records: with no records and no trials there are none, and with
/// trials without a record of a load one that says so.
#[cfg(test)]
pub(in crate::report) fn nothing_is_nothing(chart: Maker) {
    let (mut experiment, mut raw) = super::sample::sample();
    assert!(chart(&experiment, &super::sample::NoRaw).is_empty());
    raw.trials.values_mut().for_each(|trial| trial.run = None);
    assert!(matches!(chart(&experiment, &raw)[0].parts[..], [Part::Empty(_)]));
    experiment.trials.clear();
    assert!(chart(&experiment, &raw).is_empty());
}

/// All drawings of a chart, for its tests.
#[cfg(test)]
pub(in crate::report) fn markup(chart: &Chart) -> String {
    let svg = |part: &Part| match part {
        Part::Drawing(svg) => svg.markup("x"),
        _ => String::new(),
    };
    chart.parts.iter().map(svg).collect()
}

/// Whether there is more than one load, so that a chart has to name them.
#[must_use]
pub(in crate::report) fn several_loads(plan: &Plan) -> bool {
    plan.loads.len() > 1
}

/// What makes charts of an experiment; none of one that has nothing to do with it.
pub(in crate::report) type Maker = fn(&Experiment, &dyn Raw) -> Vec<Chart>;

/// Every chart, by the section that it stands in, in the order of the page.
pub(in crate::report) const CHARTS: &[(&str, Maker)] = &[
    ("Comparisons", forest::chart),
    ("Comparisons", blocks::chart),
    ("Comparisons", boxes::chart),
    ("Latency and load", latency::chart),
    ("Latency and load", curve::chart),
    ("Latency and load", table::chart),
    ("Over time", in_order::chart),
    ("Over time", over_time::chart),
    ("Over time", heat_map::chart),
    ("Processors and queues", processors::chart),
    ("Processors and queues", queues::chart),
    ("Limits", headroom::chart),
    ("Limits", scaling::chart),
    ("Functions", flame::chart),
    ("Functions", functions::chart),
    ("What differs", environment::chart),
];
