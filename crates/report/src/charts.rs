//! Charts of a report: the type of a chart, and the list of all charts in the order of the page.
//! [`super::data`] gathers the figures of a chart, [`super::plot`] draws, and [`super::page`] lays
//! out charts on a page (figure, caption, legend, data).
//!
//! To add a chart: a module with a function `chart`, a row in [`CHARTS`]. The function fills a
//! [`ReportChart`] with its data and its drawings: [`Svg::plot`] gives a plot with axes, which makes
//! marks from values. A file here has at most 120 lines; gathering figures belongs to [`super::data`].

mod blocks;
mod boxes;
mod calls;
mod cpus;
mod curve;
mod environment;
mod flame;
pub(crate) mod flame_graph;
mod forest;
mod functions;
mod headroom;
mod heat_map;
pub(crate) mod latency;
mod queues;
mod ratios;
mod scaling;
mod setting_tables;
mod sockets;
mod table;
mod timeline;
mod trial_time;

use record::experiment::{Experiment, ExperimentPlan};

use super::TrialRecords;
use super::data::trials::{has_several_loads, series_index};
use super::data::typical::{TypicalTrial, TypicalTrials, heading};
use super::data_table::DataTable;
use super::plot::Svg;

pub(crate) use ratios::draw_small as small_forest;
pub(crate) use table::text_table;

/// A chart, with all of its text on the page.
#[derive(Clone, Debug)]
pub(crate) struct ReportChart {
    /// Name, unique within the page: letters, digits and `-`.
    pub(crate) id: String,
    pub(crate) title: String,
    /// Reading instructions, in one sentence.
    pub(crate) caption: String,
    /// Contents, from top to bottom.
    pub(crate) parts: Vec<ChartPart>,
    /// Series that can be switched off, in the order of the legend. A single one gets no legend.
    pub(crate) legend: Vec<LegendEntry>,
    /// Omissions, and facts needed to interpret the chart.
    pub(crate) notes: Vec<String>,
    pub(crate) data: DataTable,
}

#[derive(Clone, Debug)]
pub(crate) enum ChartPart {
    /// Heading of the following parts: an arm, a load.
    Heading(String),
    Drawing(Svg),
    Table(ChartTable),
    /// Reason why there is no drawing, shown in its place.
    Empty(String),
}

/// A series in a legend. Marks belong to it by [`super::plot::Shape::series`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LegendEntry {
    /// Number of the series, which is also its colour.
    pub(crate) number: usize,
    pub(crate) name: String,
}

/// A table for people; the first column names the row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChartTable {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<TableCell>>,
}

/// A cell of such a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableCell {
    pub(crate) text: String,
    /// True for a figure, which is aligned to the right.
    pub(crate) is_figure: bool,
    /// Class of the style sheet for highlighted cells: `good`, `bad`, `mono`.
    pub(crate) class: Option<&'static str>,
}

impl TableCell {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Returns a cell with a figure and its unit, aligned to the right; a dash if there is none.
    pub(crate) fn figure(text: Option<String>) -> Self {
        Self { text: text.unwrap_or_else(|| "–".to_owned()), is_figure: true, class: None }
    }

    pub(crate) fn class(self, class: &'static str) -> Self {
        Self { class: Some(class), ..self }
    }

    /// Returns its classes in the style sheet, if it has any.
    pub(crate) fn classes(&self) -> Option<String> {
        let classes: Vec<&str> = self.class.into_iter().chain(self.is_figure.then_some("figure")).collect();
        (!classes.is_empty()).then(|| classes.join(" "))
    }
}

impl ReportChart {
    /// Returns a chart without parts.
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

    pub(crate) fn heading(&mut self, text: impl Into<String>) {
        self.parts.push(ChartPart::Heading(text.into()));
    }

    /// Adds a heading with the name of a load, if there are several.
    pub(crate) fn load_heading(&mut self, experiment: &Experiment, load: &str) {
        if has_several_loads(&experiment.plan) {
            self.heading(load);
        }
    }

    pub(crate) fn draw(&mut self, svg: Svg) {
        self.parts.push(ChartPart::Drawing(svg));
    }

    /// Adds a drawing, or the reason why there is none.
    pub(crate) fn draw_or(&mut self, svg: Option<Svg>, reason: &str) {
        self.parts.push(match svg {
            Some(svg) => ChartPart::Drawing(svg),
            None => ChartPart::Empty(reason.to_owned()),
        });
    }

    /// Adds an arm to the legend, if it is not there yet.
    pub(crate) fn add_series(&mut self, plan: &ExperimentPlan, arm: &str) {
        let number = series_index(plan, arm);
        if !self.legend.iter().any(|known| known.number == number) {
            self.legend.push(LegendEntry { number, name: arm.to_owned() });
        }
    }

    /// Adds a drawing for each typical trial that has one, below the trial's name. `draw` may also add
    /// data and notes.
    pub(crate) fn draw_trials(
        &mut self,
        experiment: &Experiment,
        typical: &TypicalTrials<'_>,
        draw: impl Fn(&mut Self, &TypicalTrial<'_>, &str) -> Option<Svg>,
    ) {
        for trial in typical.trials() {
            let title = heading(experiment, trial);
            if let Some(svg) = draw(self, trial, &title) {
                self.heading(title);
                self.draw(svg);
            }
        }
    }

    /// Returns the chart of typical trials with their notes; none without such trials.
    pub(crate) fn finish_trials(mut self, typical: TypicalTrials<'_>, reason: &str) -> Vec<Self> {
        self.notes.extend(typical.notes);
        if typical.groups.is_empty() { Vec::new() } else { vec![self.or_empty(reason)] }
    }

    /// Returns the chart, with the reason if it has no parts. It is shown so that nobody searches for
    /// it.
    pub(crate) fn or_empty(mut self, reason: &str) -> Self {
        if self.parts.is_empty() {
            self.draw_or(None, reason);
        }
        self
    }

    pub(crate) fn table(mut self, table: ChartTable) -> Self {
        self.parts.push(ChartPart::Table(table));
        self
    }

    pub(crate) fn legend(mut self, legend: Vec<LegendEntry>) -> Self {
        self.legend = legend;
        self
    }
}

/// Returns the series of all arms for a legend, by name.
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
        ChartPart::Drawing(svg) => svg.markup("x").into_string(),
        _ => String::new(),
    };
    chart.parts.iter().map(svg).collect()
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
    ("Over time", sockets::chart),
    ("CPUs and queues", cpus::chart),
    ("CPUs and queues", queues::chart),
    ("Limits", headroom::chart),
    ("Limits", scaling::chart),
    ("Functions", flame::chart),
    ("Functions", functions::chart),
    ("Functions", calls::chart),
    ("Differences", environment::chart),
];
