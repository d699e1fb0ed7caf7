//! Seconds of a run as CSV: one row each, names with their units, empty where there is no value.

use record::failure::FAILURE_KINDS;
use record::run::Run;

pub fn csv(run: &Run) -> String {
    let mut text = String::from(
        "time_s,length_s,measured,connections,connections_opened,responses,good,status_1xx,status_2xx,\
         status_3xx,status_4xx,status_5xx,bytes_in,bytes_out,in_flight,pending,dropped,\
         first_byte_mean_ns,last_byte_mean_ns,p50_ns,p99_ns,max_ns,lag_p99_ns,own_cpus",
    );
    for (_, name, _) in FAILURE_KINDS {
        text.push_str(&format!(",error_{name}"));
    }
    text.push_str(",parse_errors,events\n");
    for interval in &run.intervals {
        let option = |value: Option<u64>| value.map(|v| v.to_string()).unwrap_or_default();
        let classes = interval.status_classes.map(|count| count.to_string()).join(",");
        text.push_str(&format!(
            "{:.3},{:.3},{},{},{},{},{},{classes},{},{},{},{},{},{:.0},{:.0},{},{},{},{},{}",
            interval.time_s,
            interval.length_s,
            interval.measured,
            interval.connections,
            interval.connections_opened,
            interval.responses,
            option(interval.good),
            interval.bytes_in,
            interval.bytes_out,
            interval.in_flight,
            interval.pending,
            interval.dropped,
            interval.first_byte_mean_ns,
            interval.last_byte_mean_ns,
            option(interval.p50_ns),
            option(interval.p99_ns),
            interval.max_ns,
            option(interval.lag_p99_ns),
            interval.own_cpus.map(|cpus| format!("{cpus:.3}")).unwrap_or_default(),
        ));
        for (_, name, _) in FAILURE_KINDS {
            text.push_str(&format!(",{}", interval.errors.get(name).unwrap_or(&0)));
        }
        let reasons = interval.parse_errors.iter().map(|(code, count)| format!("{code}:{count}"));
        text.push_str(&format!(",{},{}\n", reasons.collect::<Vec<_>>().join(" "), option(interval.events)));
    }
    text
}
