//! The page of the import, generated from the tables, and their examples.

use crate::left::Kind;
use crate::row::Row;
use crate::{Program, caddy, haproxy, nginx};

/// Returns the examples of all rows, each as a complete config or fragment, with its row.
#[must_use]
pub fn examples() -> Vec<(Program, &'static Row, String)> {
    let tables =
        [(Program::Haproxy, haproxy::TABLE), (Program::Nginx, nginx::TABLE), (Program::Caddy, caddy::TABLE)];
    let rows = tables.into_iter().flat_map(|(program, table)| table.iter().map(move |row| (program, row)));
    rows.map(|(program, row)| (program, row, complete(program, row))).collect()
}

/// Puts the example of a row into a config that can have it.
fn complete(program: Program, row: &Row) -> String {
    let example = row.example;
    let first = example.split_whitespace().next().unwrap_or_default();
    match program {
        Program::Haproxy if example.contains('\n') && !["acl", "http-request"].contains(&first) => {
            format!("{example}\n")
        }
        Program::Haproxy => format!(
            "frontend f\n  mode http\n  bind :80\n  {example}\n  default_backend b\nbackend b\n  server s 10.0.0.1:80\n\
             backend c\n  server s 10.0.0.2:80\n"
        ),
        Program::Nginx | Program::Caddy => format!("{example}\n"),
    }
}

/// Returns the page as Markdown.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(INTRODUCTION);
    for (program, table, note) in [
        (Program::Haproxy, haproxy::TABLE, HAPROXY),
        (Program::Nginx, nginx::TABLE, NGINX),
        (Program::Caddy, caddy::TABLE, CADDY),
    ] {
        text.push_str(&format!(
            "\n## {}\n\n{note}\n\n| Directive | Becomes | Example |\n| --- | --- | --- |\n",
            program.title()
        ));
        for row in table {
            let kind = row.kind.map_or(String::new(), |kind: Kind| format!("{}: ", kind.name()));
            let example = row.example.split('\n').map(str::trim).collect::<Vec<_>>().join("; ");
            let (becomes, example) = (row.becomes.replace('|', "\\|"), example.replace('|', "\\|"));
            text.push_str(&format!("| `{}` | {kind}{becomes} | `{example}` |\n", row.directive));
        }
    }
    text
}

const INTRODUCTION: &str = "\
# Import of other programs' configs

`weir proxy import FILE` reads a config of HAProxy, nginx or Caddy and prints one of weir. Each section and key has the
lines that it comes from as comments. What it could not translate is on stderr with file, line and reason, and at the end
of the config; the exit code is then 3. The config is valid all the same (`weir proxy --config FILE --check`), but for
files that are missing.

- `not supported`: weir has no such feature, or none with the same meaning.
- `needs`: add something, such as a certificate that this machine does not have.
- `differs`: translated, with the difference that the line states. It does not change the exit code.
- `no effect here`: weir always does so, or the setting is one of the other program's implementation. It does not change
  the exit code.

A fragment is enough: a `server {}`, a `backend`, a site. What it lacks gets a default, which the config names.
Files of `include` and `import` are read if they are below the directory of the config, up to 100 files, 8 levels and
4 MiB. Environment variables are replaced by their values. A pool of HAProxy or nginx with a cookie gets a new key.

**An import is right, or it refuses.** The requests for which a rule possibly holds, and weir cannot tell, get 501 in front
of the rules behind it; so do those of an action, a location or a listener that weir does not have: authentication, files
whose directory is missing here or whose content another directive changes, unknown directives, unreadable included files.
The report names each of them. An import whose routes would have more than 1 MiB, and 16 bytes for each byte of the source, fails at the directive that is too much. Authorities of clients'
certificates that are missing here stay in the config, which weir accepts only with the file.

## Differences in any case

- Paths are routed and forwarded in normal form, and ambiguous ones are 400 ([config.md](config.md), \"Paths\"). HAProxy
  compares them as they arrive: with conditions on paths, its listeners accept only paths in normal form (`strict`).
- With conditions on paths, a path with parameters (`;…`) is 501, and so is one with an encoded control character, except
  with HAProxy. An expression that may match a part of a triplet (`%20`) refuses the paths that have one.
- Fields with the client's address or the original target (`Forwarded`, `X-Forwarded-*`, `X-Real-IP` and such) are
  forwarded only from `trusted` peers. HAProxy and nginx forward them from everybody.
- Fields with an underscore in their names are dropped (`underscores`), as in nginx.
- With `x-forwarded = true`, servers get `X-Forwarded-For`, `-Proto` and `-Host`.
- A request is retried only if no earlier attempt can have had an effect, whatever the number of retries.
- A queue has a length (`queue.limit`), and every timeout has a default.
- A failed server is ejected after 5 failures (`outlier`), with or without checks.
- Responses of weir itself have its own texts; there is no field `Server`.
- Upgrades (WebSocket) are forwarded, as by HAProxy and Caddy; nginx forwards them only with `proxy_set_header Upgrade`.
- A host keeps its case in fields and redirects; `$host` of nginx is in lower case.
- Caddy ends the TLS handshake for a name that no site has; weir has the listener's first certificate.
- A field with several lines is compared line by line, as in HAProxy and Caddy.
";
const HAPROXY: &str = "\
Times without a unit are milliseconds. Rules are compiled to routes in their order: `http-request`, then `use_backend`,
then `redirect` and `use_backend`, then the rules of the backend. A test behind a change sees the changed request.
Conditions are `path`, `hdr`, `hdr(host)`, `cook`, `method`, `src`, `ssl_fc` and `ssl_fc_sni`, with `-i`, `-m` and the
suffixes `_beg`, `_end`, `_sub`, `_dir`, `_dom` and `_reg`, and the predefined ACLs of methods. All backup servers of a
pool are used, as with `option allbackups`.

A file of `-f` or of a converter `map`, `map_str`, `map_beg`, `map_end` or `map_ip` becomes the file of a `[map.NAME]`,
which weir reads again when it changes. It must be below the directory of the config when it is imported, because HAProxy
and weir read some lines in different ways: comments behind spaces, keys with spaces, a key with two values. A file that
weir would read in another way, or compare in another way (`map_dom`, `map_reg`, `map_sub`, `hdr_dom`), becomes conditions
of routes if it has up to 100 lines, else its requests get 501. Keys are `hdr(host)`, with or without its port, `path`,
`base`, `src`, `ssl_fc_sni`, `method`, and in conditions other fields and cookies; `lower` makes a map ignore case. A host
with a dot at its end, compared without its port, gets 501. `use_backend %[…,map(FILE)]` becomes a route for each value
that the file has at the time of the import. A redirect has the host without its port. A chance (`rand`) has no
equivalent: `percent` chooses by a key.";
const NGINX: &str = "\
Times without a unit are seconds. A server is chosen by its name: exact, the longest wildcard, the expression, then the
default server. A location is chosen as in nginx: exact, `^~`, expressions in their order, the longest prefix. A prefix
is a prefix of bytes: `/api` is also that of `/apix`. A `Location` of a server is forwarded unchanged, as with
`proxy_redirect off`.

A location with `root` or `alias`, without a destination, becomes `files`. nginx looks up the index of a directory, and the
fallback of `try_files`, as a new request: where another location may have it, the requests are 501, unless that location
serves the same file without rules of its own. Files are 501, too, with a directive that changes contents or types and that
weir does not have (`ssi`, `sub_filter`, `types` without HTML), and with variables in the directory.";
const CADDY: &str = "\
Directives are applied in Caddy's own order, not in that of the file, except in `route`. Sites with a name have HTTPS and
a redirect from port 80, as in Caddy; the certificate needs your decision (`acme`), until then it is self-signed. Paths
are compared without case, as in Caddy; where a prefix is removed, other spellings of it are 501. `file_server` becomes
`files` of the `root` in force; with `templates`, `fs` or `intercept`, other names than hidden ones in `hide`, or the config
in the directory it is 501. The matcher `file` has no equivalent.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert;
    use crate::fuzzing::NoSurroundings;

    #[test]
    fn every_row_does_what_it_says() {
        let mut problems = Vec::new();
        for (program, row, text) in examples() {
            let import = match convert(program, "example", &text, &mut NoSurroundings) {
                Ok(import) => import,
                Err(error) => {
                    problems.push(format!("{}: {error}", row.directive));
                    continue;
                }
            };
            let report: Vec<String> = import.report.iter().map(ToString::to_string).collect();
            match row.kind {
                None if !row.expected.is_empty() && !import.config.contains(row.expected) => {
                    problems.push(format!(
                        "{}: no '{}' in\n{}\n{report:?}",
                        row.directive, row.expected, import.config
                    ));
                }
                None => {}
                Some(kind) => {
                    let is_there =
                        import.report.iter().any(|left| left.kind == kind && left.reason == row.becomes);
                    if !is_there {
                        problems
                            .push(format!("{}: no '{}' in {report:?}\n{text}", row.directive, row.becomes));
                    }
                }
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    #[test]
    fn rows_are_distinct() {
        for table in [haproxy::TABLE, nginx::TABLE, caddy::TABLE] {
            let mut names: Vec<&str> = table.iter().map(|row| row.directive).collect();
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }
}
