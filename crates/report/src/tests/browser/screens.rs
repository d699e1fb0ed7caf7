//! First screens of all pages at the sizes of a laptop and a phone, in both themes: nothing is clipped or overflows,
//! and the answer and the first drawing are in the first screen.

use std::path::Path;

use super::super::run_page;
use super::{browser, html, render};
use crate::synthetic::{one_load, synthetic_experiment};

/// Sizes of the screens, as width and height.
const SCREENS: [(u32, u32); 2] = [(1200, 900), (390, 844)];

/// Script that measures the page within its frame: a browser window cannot be as narrow as a phone.
const MEASURE_SCRIPT: &str = r#"
(() => {
const visible = (element) => {
  const box = element.getBoundingClientRect();
  return box.width > 0 && box.height > 0 && element.checkVisibility();
};
const name = (element) => element.tagName + '.' + (element.getAttribute('class') || element.id || '');
const all = [...document.querySelectorAll('main *, header *, footer *')].filter(visible);
const scrolls = (element) => element.closest('.scroll, pre, .data') !== null;
const clips = (element) => ['hidden', 'clip'].includes(getComputedStyle(element).overflowX);
const hidden = (element) => element.closest('caption') !== null;
const probe = { width: innerWidth, height: innerHeight };
probe.overflow = document.documentElement.scrollWidth - innerWidth;
probe.outside = all.filter((element) => !scrolls(element) && !hidden(element)
  && (element.getBoundingClientRect().right > innerWidth + 1 || element.getBoundingClientRect().left < -1)).map(name);
probe.clipped = all.filter((element) => clips(element) && !hidden(element)
  && element.scrollWidth > element.clientWidth + 1 && !element.closest('svg')).map(name);
const top = (selector) => {
  const found = [...document.querySelectorAll(selector)].find(visible);
  return found ? found.getBoundingClientRect().top : null;
};
const bottom = (selector) => {
  const found = [...document.querySelectorAll(selector)].find(visible);
  return found ? found.getBoundingClientRect().bottom : null;
};
probe.answer = bottom('.answer .result');
probe.plot = top('main svg');
const background = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number);
probe.dark = background[0] + background[1] + background[2] < 380;
const letters = [...document.querySelectorAll('main svg')].filter(visible).map((svg) =>
  12 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width);
probe.letters = Math.min(...letters);
parent.postMessage(JSON.stringify(probe), '*');
})();
"#;

/// Returns all pages by name: runs, two runs, searches and experiments.
fn pages() -> Vec<(&'static str, String)> {
    let (run, search) = (run_page::run(), run_page::search());
    let (several, several_raw) = synthetic_experiment();
    let (single, single_raw) = one_load();
    let (mut alone, alone_raw) = synthetic_experiment();
    alone.plan.arms.truncate(2);
    alone.comparisons.retain(|comparison| comparison.noise);
    vec![
        ("run", run_page::page_of(&run)),
        ("two-runs", run_page::compared(&crate::synthetic::synthetic_run(), &run)),
        ("edge", run_page::edge(&search)),
        ("lab", html(&several, &several_raw).html),
        ("lab-one-load", html(&single, &single_raw).html),
        ("lab-one-arm", html(&alone, &alone_raw).html),
    ]
}

/// Writes a page that measures itself, and a page with it in a frame of a size.
fn write_framed(
    directory: &Path,
    name: &str,
    page: &str,
    (width, height): (u32, u32),
    theme: &str,
) -> String {
    let measured = page.replace("</body>", &format!("<script>{MEASURE_SCRIPT}</script></body>"));
    std::fs::write(directory.join(format!("{name}.html")), measured).unwrap();
    let frame = format!(
        "<!DOCTYPE html><body style=\"margin:0\"><script>addEventListener('message', (event) => \
         {{ document.body.dataset.probe = event.data; }});</script>\
         <iframe src=\"{name}.html#{theme}\" style=\"border:0;width:{width}px;height:{height}px\"></iframe></body>"
    );
    let path = directory.join(format!("{name}-{width}-{theme}.html"));
    std::fs::write(&path, frame).unwrap();
    format!("file://{}", path.display())
}

#[test]
fn answer_and_first_drawing_are_in_the_first_screen_and_nothing_is_clipped() {
    let Some(browser) = browser() else {
        return test_needs::skip("chromium", "no browser here (apt-get install chromium)");
    };
    let directory = tempfile::tempdir().unwrap();
    for (name, page) in pages() {
        for (screen, theme) in
            SCREENS.into_iter().flat_map(|screen| ["light", "dark"].map(|theme| (screen, theme)))
        {
            let address = write_framed(directory.path(), name, &page, screen, theme);
            let arguments = ["--window-size=1300,1100", "--dump-dom"];
            let (dom, errors) = render(browser, directory.path(), &arguments, &address);
            assert!(!errors.contains("CONSOLE"), "{name}: {errors}");
            let (_, rest) = dom.split_once("data-probe=\"").unwrap_or_else(|| panic!("{name}: {errors}"));
            let json = rest.split_once('"').unwrap().0.replace("&quot;", "\"");
            let probe: serde_json::Value = serde_json::from_str(&json).unwrap();
            let what = format!("{name}, {screen:?}, {theme}: {probe}");
            assert_eq!(
                (probe["width"].as_u64(), probe["dark"].as_bool()),
                (Some(u64::from(screen.0)), Some(theme == "dark")),
                "{what}"
            );
            assert!(probe["overflow"].as_f64().unwrap() <= 0.0, "{what}");
            assert_eq!(
                (&probe["outside"], &probe["clipped"]),
                (&serde_json::json!([]), &serde_json::json!([])),
                "{what}"
            );
            let at = |key: &str| probe[key].as_f64().unwrap_or(f64::INFINITY);
            let height = f64::from(screen.1);
            assert!(at("answer") < height, "{what}");
            assert!(at("plot") < height, "{what}");
            assert!(at("letters") >= 10.9, "{what}");
        }
    }
}

/// Writes the screens as pictures, for a look at them: `WEIR_SCREENS=directory`.
#[test]
fn screens_are_written_to_the_requested_directory() {
    let (Some(directory), Some(browser)) = (std::env::var_os("WEIR_SCREENS"), browser()) else { return };
    let directory = Path::new(&directory);
    for (name, page) in pages() {
        for (screen, theme) in
            SCREENS.into_iter().flat_map(|screen| ["light", "dark"].map(|theme| (screen, theme)))
        {
            let address = write_framed(directory, name, &page, screen, theme);
            let picture = directory.join(format!("{name}-{}-{theme}.png", screen.0));
            let picture = format!("--screenshot={}", picture.display());
            let window = format!("--window-size={},{}", screen.0.max(500), screen.1 + 143);
            render(browser, directory, &[&window, "--hide-scrollbars", &picture], &address);
        }
    }
}
