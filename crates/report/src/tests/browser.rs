//! Tests of the page in a real browser, if there is one: its script runs without errors and works,
//! letters stay legible on a phone, and a print contains the complete page.

mod screens;

use std::path::Path;
use std::process::Command;

use super::super::charts::{CHARTS, ChartPart};
use super::super::html;
use super::super::synthetic::synthetic_experiment;

/// Timeout of a browser run, in seconds.
const SECONDS_MAX: &str = "60";

/// Script that uses the page as a reader does, and records the results.
const READER_SCRIPT: &str = r#"
const probe = {};
const drawings = [...document.querySelectorAll('figure svg')];
probe.drawings = drawings.length;
probe.seen = drawings.filter((svg) => svg.getBoundingClientRect().height > 20).length;
const toggle = document.querySelector('#blocks [data-toggle="0"]');
toggle.click();
const marks = [...document.querySelectorAll('#blocks svg [data-series="0"]')];
probe.hidden = marks.length > 0 && marks.every((mark) => getComputedStyle(mark).display === 'none');
toggle.click();
probe.back = marks.every((mark) => getComputedStyle(mark).display !== 'none');
const svg = document.querySelector('#forest svg');
svg.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
probe.tip = document.getElementById('tip').textContent.split('\n')[0];
svg.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));
probe.gone = document.getElementById('tip').hidden;
const dot = document.querySelector('#blocks circle');
dot.scrollIntoView({ block: 'center', behavior: 'instant' });
const box = dot.getBoundingClientRect();
dot.dispatchEvent(new PointerEvent('pointermove',
  { clientX: box.left + box.width / 2 + 6, clientY: box.top + box.height / 2, bubbles: true }));
probe.near = !document.getElementById('tip').hidden;
probe.theme = document.documentElement.dataset.theme;
document.getElementById('theme').click();
probe.after = document.documentElement.dataset.theme;
probe.width = innerWidth;
probe.overflow = document.documentElement.scrollWidth - innerWidth;
const letters = [...document.querySelectorAll('svg')].map((svg) =>
  12 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width);
probe.letters = Math.floor(Math.min(...letters) * 10) / 10;
// A blob is read in the background, which may take longer than the page is there: so what is put into it.
const RealBlob = Blob;
let saved = '';
window.Blob = function (parts, options) {
  saved = parts.join('');
  return new RealBlob(parts, options);
};
URL.createObjectURL = (blob) => { probe.blob = blob instanceof RealBlob; return 'data:,'; };
HTMLAnchorElement.prototype.click = function () { probe.file = this.download; };
document.querySelector('#forest .save').click();
probe.csv = saved.split('\r\n')[0];
document.body.dataset.probe = JSON.stringify(probe);
"#;

fn browser() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let is_there = |name: &&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(name).exists())
    };
    names.into_iter().find(is_there)
}

/// Returns the output of a browser for a page, and its error messages.
fn render(browser: &str, directory: &Path, arguments: &[&str], address: &str) -> (String, String) {
    let output = Command::new("timeout")
        .args([SECONDS_MAX, browser, "--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--disable-dev-shm-usage", "--virtual-time-budget=4000", "--enable-logging=stderr"])
        .arg(format!("--user-data-dir={}", directory.join("profile").display()))
        .args(arguments)
        .arg(address)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn it_works_in_a_browser_at_desktop_and_phone_size() {
    let Some(browser) = browser() else {
        return test_needs::skip("chromium", "no browser here (apt-get install chromium)");
    };
    let directory = tempfile::tempdir().unwrap();
    let (experiment, raw) = synthetic_experiment();
    let page = html(&experiment, &raw).html;
    let page = page.replace("</body>", &format!("<script>{READER_SCRIPT}</script></body>"));
    let path = directory.path().join("report.html");
    std::fs::write(&path, page).unwrap();
    let drawn = CHARTS.iter().flat_map(|(_, chart)| chart(&experiment, &raw));
    let drawn = drawn.flat_map(|chart| chart.parts);
    let drawn = drawn.filter(|part| matches!(part, ChartPart::Drawing(_))).count();
    let themes = [("dark", "light"), ("light", "dark")];
    let both = ["1280,1000", "360,780"].map(|size| themes.map(|(theme, after)| (size, theme, after)));
    for (size, theme, after) in both.into_iter().flatten() {
        let address = format!("file://{}#{theme}", path.display());
        let window = format!("--window-size={size}");
        let (page, errors) = render(browser, directory.path(), &[&window, "--dump-dom"], &address);
        assert!(!errors.contains("CONSOLE"), "{errors}");
        let (_, rest) = page.split_once("data-probe=\"").unwrap_or_else(|| panic!("{errors}"));
        let (json, _) = rest.split_once('"').unwrap();
        let json: serde_json::Value = serde_json::from_str(&json.replace("&quot;", "\"")).unwrap();
        assert_eq!(
            (json["drawings"].as_u64(), json["seen"].as_u64()),
            (Some(drawn as u64), Some(drawn as u64)),
            "{json}"
        );
        for word in ["hidden", "back", "gone", "near", "blob"] {
            assert_eq!(json[word], true, "{word}: {json}");
        }
        assert_eq!((json["theme"].as_str(), json["after"].as_str()), (Some(theme), Some(after)));
        assert!(json["tip"].as_str().unwrap().starts_with("jemalloc"), "{json}");
        assert!(json["overflow"].as_f64().unwrap() <= 0.0, "{json}");
        assert!(json["letters"].as_f64().unwrap() >= 11.0, "{json}");
        assert_eq!(json["file"], "forest.csv");
        assert!(json["csv"].as_str().unwrap().starts_with("load,metric,unit,arm"), "{json}");
    }
}

#[test]
fn it_prints() {
    let Some(browser) = browser() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (experiment, raw) = synthetic_experiment();
    let path = directory.path().join("report.html");
    std::fs::write(&path, html(&experiment, &raw).html).unwrap();
    let paper = directory.path().join("report.pdf");
    let print = format!("--print-to-pdf={}", paper.display());
    let address = format!("file://{}", path.display());
    render(browser, directory.path(), &["--no-pdf-header-footer", &print], &address);
    let paper = std::fs::read(paper).unwrap();
    assert!(paper.starts_with(b"%PDF") && paper.len() > 30_000, "{} bytes", paper.len());
}
