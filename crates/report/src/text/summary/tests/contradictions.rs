//! Checker of printed pages: figures that appear twice are equal, and sentences agree with the tables.

use record::run::Run;

/// Returns the contradictions of a page about a run, and its faults of form.
pub(crate) fn contradictions(page: &str, run: &Run) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |holds: bool, what: &str| found.extend((!holds).then(|| what.to_owned()));
    for wrong in ["…", "NaN", "inf ", "{}", " .\n", ";.", "-0 "] {
        check(!page.contains(wrong), &format!("the page contains {wrong:?}"));
    }
    // The head may wrap, and its second line may begin with the name of a label.
    let (head, rest) = page.split_once("\n\n").unwrap_or((page, ""));
    let head = head.replace('\n', " ");
    let prose = join_labelled(rest);
    let line =
        |label: &str| prose.iter().find(|(name, _)| name == label).map_or("", |(_, text)| text.as_str());
    let requests = if line("requests").is_empty() { line("responses") } else { line("requests") };
    let rate = head.split([',', ' ']).take(2).collect::<Vec<_>>().join(" ");
    let rate = rate.trim_end_matches(" of").trim_end_matches(" p50").trim_end_matches(" ");
    let pushed = format!("{} {}", line("events"), line("websocket"));
    let is_pushed = head.contains(" of events") || head.contains(" of messages");
    check(
        is_pushed && pushed.contains(&format!("({rate})"))
            || requests.contains(&format!("({rate})"))
            || requests.contains(&format!("goodput {rate}")),
        "rate of the head",
    );
    if let Some((p50, p99)) = response_percentiles(page) {
        check(head.contains(&format!("p50 {p50}, p99 {p99}")), "percentiles of the head and the table");
    }
    let errors = line("errors");
    let has_errors = errors != "none" && !errors.starts_with("none;");
    check(head.ends_with("no failures") == (errors == "none"), "failures of the head and errors");
    check(head.contains("failed request") == has_errors, "failed requests of the head and errors");
    let bad = format!(" {} bad", run.totals.bad());
    check(requests.contains(&bad), "bad responses");
    check(head.contains("bad response") != (run.totals.bad() == 0), "bad responses of the head");
    let sentences = format!("{} {} {}", line("what"), line("why"), line("next"));
    for label in ["what", "why", "next"] {
        check(line(label).ends_with('.'), &format!("{label} is no sentence"));
    }
    check(!(sentences.contains("no request failed") && errors != "none"), "sentence about errors");
    let bottleneck = line("bottleneck");
    let is_carried = sentences.contains("no limit was reached");
    check(
        !is_carried || bottleneck.is_empty() || bottleneck.starts_with("none"),
        "no limit and a bottleneck",
    );
    check(
        !(bottleneck.starts_with("none") && sentences.contains("is its ceiling")),
        "a ceiling and no bottleneck",
    );
    // The waiting fraction is stated by the answer and by the evidence.
    if let (Some(answer), Some(evidence)) =
        (before(&sentences, " % of that is waiting"), before(page, " % of the latency is waiting"))
    {
        check(answer == evidence, "waiting fraction");
    }
    let wide = super::intervals::wide_intervals(rest);
    check(wide.is_empty(), &format!("wide intervals: {wide:?}"));
    found
}

/// Returns the contradictions between the lines of a comparison, its decisions and the run.
pub(crate) fn check_comparison(text: &str, run: &Run) -> Vec<String> {
    let Some(comparison) = &run.comparison else { return vec!["no comparison".to_owned()] };
    let mut found = Vec::new();
    let mut check = |holds: bool, what: &str| found.extend((!holds).then(|| what.to_owned()));
    let head = crate::text::answer::headline(run);
    let figure_lines = text.lines().filter(|line| line.contains(" -> "));
    for line in figure_lines.filter(|line| line.contains("p50 ") || line.contains("p99 ")) {
        let name = if line.contains("p50 ") { "p50" } else { "p99" };
        let after = line.split(" -> ").nth(1).and_then(|rest| rest.split(": ").next()).unwrap_or_default();
        check(head.contains(&format!("{name} {after},")), &format!("figure of the head: {line}"));
    }
    let has_regression = text.lines().any(|line| line.contains(": YES"));
    check((comparison.exit_code == 3) == has_regression, "exit code and regression");
    for condition in &comparison.conditions {
        let figure = comparison.figures.iter().find(|figure| figure.figure == condition.figure);
        let interval = figure.and_then(|figure| figure.interval);
        let is_beyond = interval.is_some_and(|(low, high)| match condition.figure.as_str() {
            "rate" => high < -condition.limit,
            _ => low > condition.limit,
        });
        let line =
            text.lines().find(|line| line.contains(&format!("{}: ", condition.text))).unwrap_or_default();
        check(
            !line.contains(": YES") || is_beyond,
            &format!("regression within its interval: {line}, {interval:?}"),
        );
        check(
            !is_beyond || !line.contains(": no,"),
            &format!("no regression beyond its interval: {line}, {interval:?}"),
        );
    }
    let wide = super::intervals::wide_intervals(text);
    check(wide.is_empty(), &format!("wide intervals: {wide:?}"));
    found
}

/// Joins the lines of each label.
fn join_labelled(page: &str) -> Vec<(String, String)> {
    let mut joined: Vec<(String, String)> = Vec::new();
    for line in page.lines() {
        let at = line.char_indices().nth(crate::text::layout::LABEL_WIDTH).map_or(line.len(), |(at, _)| at);
        let (label, text) = (line[..at].trim(), line[at..].trim());
        match joined.last_mut() {
            Some((_, before)) if label.is_empty() && !text.is_empty() => *before = format!("{before} {text}"),
            _ => joined.push((label.to_owned(), text.to_owned())),
        }
    }
    joined
}

/// Returns p50 and p99 of the responses in the table of latencies.
fn response_percentiles(page: &str) -> Option<(String, String)> {
    let columns = |line: &str| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    let lines: Vec<&str> = page.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("latency ") && line.contains("p50"))?;
    let names = columns(lines[at]);
    // A table of all phases ends with that of the last byte.
    let rows = &lines[at + 1..];
    let last_byte = rows.iter().position(|line| line.starts_with("last byte ")).unwrap_or(0);
    let rows = rows[last_byte..].iter().take(3).map(|line| columns(line));
    let row = rows.into_iter().find(|row| row.first().is_some_and(|name| name.starts_with("response")))?;
    let cell = |name: &str| Some(row.get(names.iter().position(|column| column == name)?)?.clone());
    Some((cell("p50")?, cell("p99")?))
}

/// Returns the word before a phrase.
fn before(text: &str, phrase: &str) -> Option<String> {
    let (start, _) = text.split_once(phrase)?;
    start.split_whitespace().next_back().map(str::to_owned)
}
