//! Charts of a report: the type of a chart, and the list of all charts in the order of the page.
//! [`super::page`] lays out charts on a page (figure, caption, legend, data).

mod blocks;
mod boxes;
mod cpus;
mod curve;
mod environment;
mod flame;
mod forest;
mod functions;
mod headroom;
mod heat_map;
mod latency;
mod panel;
mod queues;
mod scaling;
mod stacks;
mod table;
mod timeline;
pub(crate) mod trial_data;
mod trial_time;
mod typical_trials;

use record::experiment::{Experiment, ExperimentPlan};

use super::TrialRecords;
use super::data_table::DataTable;
use super::svg::{NOISE_SERIES, Svg};

pub(crate) use forest::draw_small as small_forest;
pub(crate) use table::text_table;
pub(crate) use trial_data::{change, has_few_blocks, outcome};

/// A chart, with all of its text on the page.
#[derive(Clone, Debug)]
pub(crate) struct ReportChart {
    /// Name, unique within the page: letters, digits and `-`.
    pub(crate) id: String,
    /// Short description.
    pub(crate) title: String,
    /// Reading instructions, in one sentence.
    pub(crate) caption: String,
    /// Contents, from top to bottom.
    pub(crate) parts: Vec<ChartPart>,
    /// Series that can be switched off, in the order of the legend. A single one gets no legend.
    pub(crate) legend: Vec<LegendEntry>,
    /// Omissions, and facts needed to interpret the chart.
    pub(crate) notes: Vec<String>,
    /// Complete figures of the chart.
    pub(crate) data: DataTable,
}

/// A part of a chart.
#[derive(Clone, Debug)]
pub(crate) enum ChartPart {
    /// Heading of the following parts: an arm, a load.
    Heading(String),
    /// A drawing.
    Drawing(Svg),
    /// A table for people.
    Table(ChartTable),
    /// Reason why there is no drawing, shown in its place.
    Empty(String),
}

/// A series in a legend. Marks belong to it by [`super::svg::Shape::series`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LegendEntry {
    /// Number of the series, which is also its colour.
    pub(crate) number: usize,
    /// Its name.
    pub(crate) name: String,
}

/// A table for people; the first column names the row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChartTable {
    /// Heads of the columns.
    pub(crate) columns: Vec<String>,
    /// Rows, with a cell for each column.
    pub(crate) rows: Vec<Vec<TableCell>>,
}

/// A cell of such a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableCell {
    /// Text of the cell.
    pub(crate) text: String,
    /// True for a figure, which is aligned to the right.
    pub(crate) is_figure: bool,
    /// Class of the style sheet for highlighted cells: `good`, `bad`, `mono`.
    pub(crate) class: Option<&'static str>,
}

impl TableCell {
    /// Returns a cell with words.
    #[must_use]
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Returns a cell with a figure and its unit, aligned to the right; a dash if there is none.
    #[must_use]
    pub(crate) fn figure(text: Option<String>) -> Self {
        Self { text: text.unwrap_or_else(|| "–".to_owned()), is_figure: true, class: None }
    }

    /// Sets the class.
    #[must_use]
    pub(crate) fn class(mut self, class: &'static str) -> Self {
        self.class = Some(class);
        self
    }
}

impl ReportChart {
    /// Returns a chart without parts.
    #[must_use]
    pub(crate) fn new(id: &str, title: &str, caption: &str, data: DataTable) -> Self {
        Self {
            id: id.to_owned(),
            title: title.to_owned(),
            caption: caption.to_owned(),
            parts: Vec::new(),
            legend: Vec::new(),
            notes: Vec::new(),
            data,
        }
    }

    /// Returns a chart without data, with the reason. It is shown so that nobody searches for it.
    #[must_use]
    pub(crate) fn empty(id: &str, title: &str, caption: &str, reason: &str) -> Self {
        let mut chart = Self::new(id, title, caption, DataTable::default());
        chart.parts.push(ChartPart::Empty(reason.to_owned()));
        chart
    }

    /// Adds a table.
    #[must_use]
    pub(crate) fn table(mut self, table: ChartTable) -> Self {
        self.parts.push(ChartPart::Table(table));
        self
    }

    /// Sets the legend.
    #[must_use]
    pub(crate) fn legend(mut self, legend: Vec<LegendEntry>) -> Self {
        self.legend = legend;
        self
    }
}

/// Returns the number of an arm's series, which is its colour in every chart: the position among
/// the arms, without the A/A arm, which is grey.
#[must_use]
pub(crate) fn series_index(plan: &ExperimentPlan, arm: &str) -> usize {
    let own = plan.arms.iter().filter(|arm| arm.repeats.is_none());
    own.enumerate().find(|(_, own)| own.name == arm).map_or(NOISE_SERIES, |(index, _)| index)
}

/// Returns the series of all arms for a legend, by name.
#[must_use]
pub(crate) fn arms_legend(plan: &ExperimentPlan) -> Vec<LegendEntry> {
    let named = |arm: &record::experiment::Arm| {
        let name = match &arm.repeats {
            Some(original) => format!("{original} again (A/A)"),
            None => arm.name.clone(),
        };
        LegendEntry { number: series_index(plan, &arm.name), name }
    };
    plan.arms.iter().map(named).collect()
}

/// Tests a chart that is made of records. Without records and trials it gives no chart; with trials
/// but no record of a load it gives one that says so.
#[cfg(test)]
pub(crate) fn assert_no_data_no_chart(chart: ChartBuilder) {
    let (mut experiment, mut raw) = super::synthetic::synthetic_experiment();
    assert!(chart(&experiment, &super::synthetic::NoRecords).is_empty());
    raw.trials.values_mut().for_each(|trial| trial.run = None);
    assert!(matches!(chart(&experiment, &raw)[0].parts[..], [ChartPart::Empty(_)]));
    experiment.trials.clear();
    assert!(chart(&experiment, &raw).is_empty());
}

/// Returns all drawings of a chart, for its tests.
#[cfg(test)]
pub(crate) fn markup(chart: &ReportChart) -> String {
    let svg = |part: &ChartPart| match part {
        ChartPart::Drawing(svg) => svg.markup("x"),
        _ => String::new(),
    };
    chart.parts.iter().map(svg).collect()
}

/// Returns whether there are several loads, so that a chart has to name them.
#[must_use]
pub(crate) fn has_several_loads(plan: &ExperimentPlan) -> bool {
    plan.loads.len() > 1
}

/// Function that makes charts of an experiment; it returns none if the experiment has no such data.
pub(crate) type ChartBuilder = fn(&Experiment, &dyn TrialRecords) -> Vec<ReportChart>;

/// Every chart with its section, in the order of the page.
pub(crate) const CHARTS: &[(&str, ChartBuilder)] = &[
    ("Comparisons", forest::chart),
    ("Comparisons", curve::chart),
    ("Comparisons", blocks::chart),
    ("Comparisons", boxes::chart),
    ("Latency and load", latency::chart),
    ("Latency and load", table::chart),
    ("Over time", timeline::chart),
    ("Over time", trial_time::chart),
    ("Over time", heat_map::chart),
    ("CPUs and queues", cpus::chart),
    ("CPUs and queues", queues::chart),
    ("Limits", headroom::chart),
    ("Limits", scaling::chart),
    ("Functions", flame::chart),
    ("Functions", functions::chart),
    ("Differences", environment::chart),
];
