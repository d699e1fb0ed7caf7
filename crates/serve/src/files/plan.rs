//! Configuration of the files of an origin: parses the texts of its flags, and reports every problem at
//! once. It reads the properties of the root, standard input, and the file of credentials.

use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use content::auth::Credentials;
use content::compress::CompressionLevels;
use content::etag::{self, EtagSource};
use content::media_types::sniff;
use content::plan::{
    CACHE_ENTRIES, CACHE_VALID_NS, COMPRESS_BYTES_MIN, COMPRESS_MEMORY_BYTES, FilesPlan, FilesSource,
    INDEX_DEFAULT, MemorySource,
};
use record::invalid_value;
use record::problem::{InputProblem, InvalidValue};
use record::units::{DurationUnit, parse_count, parse_duration_ns, parse_size};
use wire::encode::{check_field_name, check_field_value};

/// Maximum size of standard input that is served: 256 MiB.
pub(crate) const STDIN_BYTES_MAX: u64 = 256 << 20;

/// Maximum number of lookups of a thread; each may hold a descriptor.
const CACHE_ENTRIES_MAX: u64 = 1 << 20;

/// Flags of the files as typed. An empty text is the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilesPlanText {
    /// Directory or file to serve, or `-`; empty: none.
    pub target: String,
    /// Names that stand for their directory, in their order; none: `index.html`.
    pub index: Vec<String>,
    /// True if directories without an index are listed.
    pub list: bool,
    /// True if the index of the root replaces a missing file.
    pub spa: bool,
    /// True if names with a dot at their start are served.
    pub hidden: bool,
    /// True if symbolic links are refused.
    pub no_symlinks: bool,
    /// Fields of every response, `Name: value`.
    pub headers: Vec<String>,
    pub cache_control: String,
    /// Origins that may read responses, or `*`.
    pub cors: Vec<String>,
    /// Credentials, `USER:PASSWORD` or `@FILE`.
    pub basic_auth: Vec<String>,
    /// Codings on the fly, `gzip:6,br,zstd` or `all`.
    pub compress: String,
    /// Minimum size of a file that is compressed on the fly; default: 1 KiB.
    pub compress_min: String,
    /// Maximum memory of the encoders of a thread; default: 32 MiB.
    pub compress_memory: String,
    /// Source of entity tags: `content`, `mtime-size` or `inode`; default: `mtime-size`.
    pub etag: String,
    /// True if `.br`, `.zst` and `.gz` files beside a file are not used.
    pub no_precompressed: bool,
    /// Number of lookups that a thread keeps; default: 1,024; `0`: no cache.
    pub file_cache: String,
    /// Time for which a lookup is valid; default: 1 s; bare numbers are seconds.
    pub file_cache_valid: String,
}

/// Fields that this origin writes itself.
const OWN_FIELDS: &[&str] = &[
    "accept-ranges",
    "access-control-allow-origin",
    "allow",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "date",
    "etag",
    "keep-alive",
    "last-modified",
    "location",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
    "www-authenticate",
];

impl FilesPlanText {
    /// Parses the flags. Returns `None` without a directory or a file.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub(crate) fn parse(&self) -> Result<Option<FilesPlan>, Vec<InputProblem>> {
        let text = self;
        let mut problems = Vec::new();
        if text.target.is_empty() {
            let Some(flag) = first_flag(text) else { return Ok(None) };
            let why = "no effect without files: add a directory or a file (weir serve DIR)";
            return Err(vec![InputProblem::new(flag, why)]);
        }
        let credentials = Credentials::parse(&text.basic_auth).unwrap_or_else(|texts| {
            problems.extend(texts.into_iter().map(|text| InputProblem::new("--basic-auth", text)));
            Credentials::default()
        });
        let compression = CompressionLevels::parse(&text.compress).unwrap_or_else(|texts| {
            problems.extend(texts.into_iter().map(|text| InputProblem::new("--compress", text)));
            CompressionLevels::default()
        });
        let etags = EtagSource::parse(&text.etag).unwrap_or_else(|why| {
            problems.push(InputProblem::new("--etag", why));
            EtagSource::default()
        });
        let mut or_problem = |flag: &str, result: Result<u64, InvalidValue>| {
            result.unwrap_or_else(|why| {
                problems.push(InputProblem::new(flag, why));
                0
            })
        };
        let compress_bytes_min =
            or_problem("--compress-min", size_or(&text.compress_min, COMPRESS_BYTES_MIN));
        let compress_memory_bytes =
            or_problem("--compress-memory", size_or(&text.compress_memory, COMPRESS_MEMORY_BYTES));
        let cache_entries = or_problem("--file-cache", entries(&text.file_cache)) as usize;
        let cache_valid_ns = or_problem("--file-cache-valid", valid_time(&text.file_cache_valid));
        let plan = FilesPlan {
            source: parse_source(&text.target, &mut problems),
            index: parse_index(&text.index, &mut problems),
            lists: text.list,
            is_spa: text.spa,
            serves_hidden: text.hidden,
            follows_symlinks: !text.no_symlinks,
            fields: parse_headers(&text.headers, &mut problems),
            cache_control: parse_cache_control(&text.cache_control, &mut problems),
            cors: parse_cors(&text.cors, &mut problems),
            credentials,
            compression,
            compress_bytes_min,
            compress_memory_bytes,
            etags,
            uses_precompressed: !text.no_precompressed,
            cache_entries,
            cache_valid_ns,
        };
        if problems.is_empty() { Ok(Some(plan)) } else { Err(problems) }
    }
}

fn first_flag(text: &FilesPlanText) -> Option<&'static str> {
    let flags = [
        (!text.index.is_empty(), "--index"),
        (text.list, "--list"),
        (text.spa, "--spa"),
        (text.hidden, "--hidden"),
        (text.no_symlinks, "--no-symlinks"),
        (!text.headers.is_empty(), "--header"),
        (!text.cache_control.is_empty(), "--cache-control"),
        (!text.cors.is_empty(), "--cors"),
        (!text.basic_auth.is_empty(), "--basic-auth"),
        (!text.compress.is_empty(), "--compress"),
        (!text.compress_min.is_empty(), "--compress-min"),
        (!text.compress_memory.is_empty(), "--compress-memory"),
        (!text.etag.is_empty(), "--etag"),
        (text.no_precompressed, "--no-precompressed"),
        (!text.file_cache.is_empty(), "--file-cache"),
        (!text.file_cache_valid.is_empty(), "--file-cache-valid"),
    ];
    flags.into_iter().find_map(|(is_given, flag)| is_given.then_some(flag))
}

fn parse_source(target: &str, problems: &mut Vec<InputProblem>) -> FilesSource {
    let source = if target == "-" { read_stdin() } else { find_source(target) };
    source.unwrap_or_else(|why| {
        problems.push(InputProblem::from_file_error(why));
        FilesSource::Directory(PathBuf::new())
    })
}

fn find_source(target: &str) -> Result<FilesSource, InvalidValue> {
    let metadata = fs::metadata(target).map_err(|error| invalid_value!("{target}: {error}"))?;
    // The links of the path stay, so that a link that is replaced later is followed again.
    let path = std::path::absolute(target).map_err(|error| invalid_value!("{target}: {error}"))?;
    if metadata.is_dir() {
        return Ok(FilesSource::Directory(path));
    }
    if !metadata.is_file() {
        return Err(invalid_value!("{target}: neither a directory nor a regular file"));
    }
    let Some(name) = path.file_name() else {
        return Err(invalid_value!("{target}: not a file in a directory"));
    };
    match std::str::from_utf8(name.as_bytes()) {
        Ok(name) => Ok(FilesSource::File { name: name.to_owned(), path }),
        Err(_) => Err(invalid_value!("{target}: the name is not UTF-8; serve its directory")),
    }
}

fn read_stdin() -> Result<FilesSource, InvalidValue> {
    let mut content = Vec::new();
    let read = std::io::stdin().lock().take(STDIN_BYTES_MAX + 1).read_to_end(&mut content);
    read.map_err(|error| invalid_value!("standard input: {error}"))?;
    if content.len() as u64 > STDIN_BYTES_MAX {
        return Err(invalid_value!("standard input is larger than 256 MiB; serve it from a file"));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(FilesSource::Memory(MemorySource {
        etag: etag::from_content(&content),
        content_type: sniff(&content),
        modified_s: now.map_or(0, |since| since.as_secs()),
        content: content.into(),
    }))
}

fn parse_index(names: &[String], problems: &mut Vec<InputProblem>) -> Vec<String> {
    if names.is_empty() {
        return vec![INDEX_DEFAULT.to_owned()];
    }
    for name in names {
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            problems.push(InputProblem::new("--index", format!("'{name}' is not the name of a file")));
        }
    }
    names.to_vec()
}

fn parse_headers(headers: &[String], problems: &mut Vec<InputProblem>) -> Vec<u8> {
    let mut lines = Vec::new();
    for header in headers {
        let mut problem = |why: String| problems.push(InputProblem::new("--header", why));
        let Some((name, value)) = header.split_once(':') else {
            problem(format!("'{header}' is not NAME: VALUE"));
            continue;
        };
        let value = value.trim();
        if let Err(error) = check_field_name(name).and_then(|()| check_field_value(value.as_bytes())) {
            problem(format!("'{header}': {error}"));
        } else if OWN_FIELDS.contains(&name.to_ascii_lowercase().as_str()) {
            problem(format!("'{name}' is a field that weir writes itself"));
        } else if name.eq_ignore_ascii_case("cache-control") {
            problem("use --cache-control VALUE, which leaves errors out".to_owned());
        } else {
            wire::encode::field(&mut lines, name, value.as_bytes());
        }
    }
    lines
}

fn parse_cache_control(value: &str, problems: &mut Vec<InputProblem>) -> Vec<u8> {
    let mut line = Vec::new();
    match check_field_value(value.as_bytes()) {
        Ok(()) if value.is_empty() => {}
        Ok(()) => wire::encode::field(&mut line, "Cache-Control", value.as_bytes()),
        Err(error) => problems.push(InputProblem::new("--cache-control", format!("'{value}': {error}"))),
    }
    line
}

fn parse_cors(origins: &[String], problems: &mut Vec<InputProblem>) -> Vec<String> {
    let is_origin = |text: &str| {
        let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        host.is_some_and(|host| {
            !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/')
        })
    };
    for origin in origins {
        if origin != "*" && origin != "null" && !is_origin(origin) {
            let why = format!("'{origin}' is not * or an origin such as https://example.org, without a path");
            problems.push(InputProblem::new("--cors", why));
        }
    }
    if origins.iter().any(|origin| origin == "*") { vec!["*".to_owned()] } else { origins.to_vec() }
}

fn size_or(text: &str, default: u64) -> Result<u64, InvalidValue> {
    if text.is_empty() { Ok(default) } else { parse_size(text) }
}

fn entries(text: &str) -> Result<u64, InvalidValue> {
    match text {
        "" => Ok(CACHE_ENTRIES as u64),
        text => match parse_count(text)? {
            count if count <= CACHE_ENTRIES_MAX => Ok(count),
            _ => Err(invalid_value!("'{text}' is more than {CACHE_ENTRIES_MAX} files")),
        },
    }
}

fn valid_time(text: &str) -> Result<u64, InvalidValue> {
    match text {
        "" => Ok(CACHE_VALID_NS),
        text => match parse_duration_ns(text, DurationUnit::Seconds)? {
            0 => Err(invalid_value!("0 would never be valid; --file-cache 0 switches the cache off")),
            time_ns => Ok(time_ns),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(change: impl FnOnce(&mut FilesPlanText)) -> Result<Option<FilesPlan>, Vec<InputProblem>> {
        let mut text = FilesPlanText { target: ".".into(), ..FilesPlanText::default() };
        change(&mut text);
        text.parse()
    }

    #[test]
    fn a_directory_needs_no_flags() {
        let plan = parse(|_| {}).unwrap().unwrap();
        assert_eq!(plan.index, [INDEX_DEFAULT]);
        assert_eq!((plan.cache_entries, plan.cache_valid_ns), (CACHE_ENTRIES, CACHE_VALID_NS));
        assert!(
            plan.uses_precompressed && plan.follows_symlinks && !plan.lists && plan.credentials.is_empty()
        );
        assert!(plan.root().unwrap().is_absolute());
        assert_eq!(FilesPlanText::default().parse(), Ok(None));
    }

    #[test]
    fn a_file_is_served_from_its_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let plan = parse(|text| text.target = file.path().display().to_string()).unwrap().unwrap();
        let FilesSource::File { name, .. } = plan.source else { panic!("{plan:?}") };
        assert_eq!(name, file.path().file_name().unwrap().to_str().unwrap());
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let problems = parse(|text| {
            text.target = "/no/such/directory".into();
            text.index = vec!["a/b".into()];
            text.headers = vec!["x".into(), "Content-Length: 5".into(), "a b: c".into(), "X: \n".into()];
            text.cors = vec!["example.org".into()];
            text.basic_auth = vec!["ann".into()];
            text.compress = "lzma".into();
            text.compress_min = "x".into();
            text.compress_memory = "x".into();
            text.etag = "size".into();
            text.file_cache = "2m".into();
            text.file_cache_valid = "0".into();
            text.cache_control = "\r".into();
        });
        let flags: Vec<String> = problems.unwrap_err().into_iter().map(|problem| problem.location).collect();
        let expected = [
            "--basic-auth",
            "--compress",
            "--etag",
            "--compress-min",
            "--compress-memory",
            "--file-cache",
            "--file-cache-valid",
            "",
            "--index",
            "--header",
            "--header",
            "--header",
            "--cache-control",
            "--cors",
        ];
        assert_eq!(flags, expected);
    }

    #[test]
    fn flags_of_files_need_files() {
        let text = FilesPlanText { list: true, ..FilesPlanText::default() };
        assert_eq!(text.parse().unwrap_err()[0].location, "--list");
    }
}
