//! Histogram of a latency as text: one line of blocks over logarithmic buckets, and its ends.

use record::histogram::{LatencyHistogram, LatencySummary};
use record::units::format_duration_ns;

/// Maximum number of buckets; with the margin and the frame this is less than 80 columns.
const BUCKETS_MAX: usize = 60;
/// Smallest ratio of the ends of a bucket; the histogram distinguishes no less.
const BUCKET_RATIO_MIN: f64 = 1.005;
/// Column at which the blocks begin.
const MARGIN: usize = 13;
/// Blocks by height.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Formats the histogram of a latency in two lines. Empty if the record has none, or if all values
/// are the same.
pub fn latency_histogram(summary: &LatencySummary) -> String {
    let Ok(histogram) = LatencyHistogram::decode(&summary.hdr) else { return String::new() };
    let (min_ns, max_ns) = (histogram.value_at_quantile(0.0).max(1), histogram.max_ns());
    let counts = bucket_fractions(&histogram, min_ns, max_ns);
    if counts.len() < 2 {
        return String::new();
    }
    let (low, high) = (format_duration_ns(min_ns), format_duration_ns(max_ns));
    let used = low.chars().count() + high.chars().count();
    let scale = if counts.len() > used + 6 { "log" } else { "" };
    let width = counts.len().saturating_sub(used).max(3);
    let margin = " ".repeat(MARGIN);
    format!("{:<MARGIN$}{}\n{margin}{low}{scale:^width$}{high}\n", "responses", draw(&counts))
}

fn bucket_fractions(histogram: &LatencyHistogram, min_ns: u64, max_ns: u64) -> Vec<f64> {
    let ratio = max_ns as f64 / min_ns as f64;
    if histogram.is_empty() || ratio <= 1.0 {
        return Vec::new();
    }
    let buckets = ((ratio.ln() / BUCKET_RATIO_MIN.ln()) as usize).clamp(1, BUCKETS_MAX);
    let end_ns = |bucket: usize| match bucket == buckets {
        true => max_ns,
        false => (min_ns as f64 * ratio.powf(bucket as f64 / buckets as f64)) as u64,
    };
    let within = (1..=buckets).map(|bucket| histogram.fraction_within(end_ns(bucket)));
    let mut before = 0.0;
    within.map(|fraction| (fraction - std::mem::replace(&mut before, fraction)).max(0.0)).collect()
}

/// Draws a block for each bucket; an empty bucket is a space, the fullest has full height.
fn draw(fractions: &[f64]) -> String {
    let max = fractions.iter().copied().fold(0.0, f64::max);
    let block = |fraction: &f64| match fraction / max {
        height if height > 0.0 => {
            BLOCKS[((height * BLOCKS.len() as f64).ceil() as usize).clamp(1, BLOCKS.len()) - 1]
        }
        _ => ' ',
    };
    fractions.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(values_ns: &[u64]) -> String {
        let mut histogram = LatencyHistogram::new();
        values_ns.iter().for_each(|ns| histogram.record(*ns));
        latency_histogram(&histogram.summary())
    }

    #[test]
    fn buckets_are_logarithmic_and_the_ends_are_labelled() {
        let text = text(&[10_000, 10_000, 1_000_000, 100_000_000]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        let blocks: Vec<char> = lines[0].chars().skip(MARGIN).collect();
        assert_eq!((blocks.len(), blocks[0], blocks[BUCKETS_MAX - 1]), (BUCKETS_MAX, '█', '▄'));
        assert!(blocks[28..32].contains(&'▄'), "{text}");
        assert!(lines[1].trim_start().starts_with("10.0 µs") && lines[1].ends_with("100 ms"));
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn equal_values_and_none_have_no_histogram() {
        assert_eq!((text(&[]), text(&[5000, 5000])), (String::new(), String::new()));
    }
}
