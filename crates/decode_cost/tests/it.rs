//! Cost of every decoder of a peer's bytes: for the corpora of the fuzz targets, mutations of them, and long
//! inputs that repeat a part of them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use decode_cost::{BUDGETS, CountingAllocator, check_seeds};
use wire::fuzzing::decode;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn fuzz_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Returns the files of a corpus.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = fuzz_directory().join("corpus").join(name);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[test]
fn frames_for_tcp_in_user_space() {
    check_seeds("user_tcp_frames", &corpus("user_tcp_frames"), xdp::fuzzing::receive_frames);
}

#[test]
fn heads_of_http1() {
    check_seeds("request_head", &corpus("request_head"), decode::request_head);
    check_seeds("response_head", &corpus("response_head"), decode::response_head);
}

#[test]
fn chunks_extensions_and_trailers() {
    check_seeds("chunked_body", &corpus("chunked_body"), decode::chunked_body);
}

#[test]
fn frames_of_a_websocket() {
    check_seeds("websocket", &corpus("websocket"), decode::websocket);
}

#[test]
fn events_of_a_stream() {
    check_seeds("event_stream", &corpus("event_stream"), decode::event_stream);
}

#[test]
fn http2_of_a_client() {
    check_seeds("h2_server", &corpus("h2_server"), decode::h2_server);
}

#[test]
fn http2_of_a_server() {
    check_seeds("h2_client", &corpus("h2_client"), decode::h2_client);
}

#[test]
fn field_blocks() {
    check_seeds("hpack", &corpus("hpack"), decode::hpack);
}

#[test]
fn requests_of_a_connection() {
    let decode = |bytes: &[u8]| drop(wire::fuzzing::accepted_requests(bytes));
    check_seeds("differential", &corpus("differential"), decode);
}

#[test]
fn forwarded_messages() {
    check_seeds("forward_request", &corpus("request_head"), |bytes| {
        proxy::fuzzing::only_forward_request(bytes);
    });
    check_seeds("forward_response", &corpus("response_head"), |bytes| {
        proxy::fuzzing::only_forward_response(bytes);
    });
}

#[test]
fn targets() {
    let seeds = ["/a/./b/../c%2fd%7Ee?x=/../", "/a//b/%2e%2E/%zz/%", "http://h/a/b", "*", "/..;/;a=b/"];
    let seeds: Vec<Vec<u8>> = seeds.map(|text| text.as_bytes().to_vec()).to_vec();
    check_seeds("proxy_target", &seeds, |bytes| {
        proxy::fuzzing::target(bytes);
    });
}

#[test]
fn proxy_headers() {
    check_seeds("proxy_header", &corpus("proxy_header"), decode::proxy_header);
}

#[test]
fn client_hellos() {
    check_seeds("client_hello", &corpus("client_hello"), proxy::fuzzing::decode_client_hello);
}

#[test]
fn answers_of_name_servers() {
    check_seeds("dns_answer", &corpus("dns_answer"), |bytes| {
        proxy::fuzzing::dns_answer(bytes);
    });
}

#[test]
fn responses_to_updates_of_zones() {
    check_seeds("dns_update", &corpus("dns_update"), |bytes| {
        proxy::fuzzing::dns_update(bytes);
    });
}

#[test]
fn files_of_keys() {
    check_seeds("tsig_key", &corpus("tsig_key"), |bytes| {
        proxy::fuzzing::tsig_key(bytes);
    });
}

#[test]
fn responses_of_acme_servers() {
    check_seeds("acme_response", &corpus("acme_response"), |bytes| {
        proxy::fuzzing::acme_response(bytes);
    });
}

#[test]
fn certificates_and_ocsp_responses() {
    check_seeds("certificate", &corpus("certificate"), |bytes| {
        rt::fuzzing::certificate(bytes);
    });
    check_seeds("ocsp_response", &corpus("ocsp_response"), |bytes| {
        rt::fuzzing::ocsp_response(bytes);
    });
}

#[test]
fn responses_for_the_cache_and_its_files() {
    check_seeds("cache_policy", &corpus("cache_policy"), cache::fuzzing::only_policy);
    check_seeds("cache_file", &corpus("cache_file"), cache::fuzzing::only_file);
}

#[test]
fn logs() {
    check_seeds("replay_log", &corpus("replay_log"), |bytes| {
        load::fuzzing::replay_log(bytes);
    });
}

#[test]
fn histograms_and_records() {
    check_seeds("histogram", &corpus("histogram"), record::fuzzing::decode_histogram);
    check_seeds("run_record", &corpus("run_record"), |bytes| {
        record::fuzzing::run_record(bytes);
    });
}

#[test]
fn messages_of_a_fleet() {
    check_seeds("fleet_message", &corpus("fleet_message"), |bytes| {
        fleet::fuzzing::message(bytes);
    });
    check_seeds("nats_server", &corpus("nats_server"), |bytes| {
        fleet::fuzzing::nats_server(bytes);
    });
}

/// A config is the operator's: only its factor is checked, and no long input.
#[test]
fn configs() {
    let text = b"[listener.web]\nbind = \"127.0.0.1:0\"\npool = \"app\"\n\
        [pool.app]\nservers = [\"127.0.0.1:9001\"]\n";
    decode_cost::check("proxy_config", text, |bytes| {
        proxy::fuzzing::config(bytes);
    });
}

#[test]
fn texts_with_values() {
    check_seeds("proxy_template", &corpus("proxy_template"), |bytes| {
        proxy::fuzzing::template(bytes);
    });
}

#[test]
fn files_of_maps() {
    check_seeds("proxy_map", &corpus("proxy_map"), |bytes| {
        proxy::fuzzing::map(bytes);
    });
}

/// A condition is the operator's, as a config is.
#[test]
fn conditions() {
    for seed in corpus("proxy_condition") {
        decode_cost::check("proxy_condition", &seed, |bytes| {
            proxy::fuzzing::condition(bytes);
        });
    }
}

#[test]
fn configs_of_other_programs() {
    check_seeds("proxy_import", &corpus("proxy_import"), |bytes| {
        import::fuzzing::import(bytes);
    });
}

/// Files of a config are the operator's, as a config is.
#[test]
fn files_of_a_config() {
    for seed in corpus("proxy_sources") {
        decode_cost::check("proxy_sources", &seed, |bytes| {
            proxy::fuzzing::sources(bytes);
        });
    }
}

#[test]
fn formatted_files() {
    check_seeds("toml_format", &corpus("toml_format"), record::fuzzing::only_format_toml);
}

/// Corpora have seeds that reach the inside of their decoders.
#[test]
fn seeds_are_valid() {
    let valid = |name: &str, is_valid: fn(&[u8]) -> bool| {
        let seeds = corpus(name);
        let count = seeds.iter().filter(|seed| is_valid(seed)).count();
        assert!(count >= 2 && seeds.len() >= 3, "{name}: {count} of {}", seeds.len());
    };
    valid("dns_answer", proxy::fuzzing::dns_answer);
    valid("dns_update", proxy::fuzzing::dns_update);
    valid("tsig_key", proxy::fuzzing::tsig_key);
    valid("proxy_template", proxy::fuzzing::template);
    valid("proxy_condition", proxy::fuzzing::condition);
    valid("proxy_auth", proxy::fuzzing::auth);
    valid("proxy_map", proxy::fuzzing::map);
    valid("acme_response", proxy::fuzzing::acme_response);
    valid("certificate", rt::fuzzing::certificate);
    valid("ocsp_response", rt::fuzzing::ocsp_response);
    valid("replay_log", load::fuzzing::replay_log);
    valid("histogram", record::fuzzing::histogram);
    valid("run_record", record::fuzzing::run_record);
    valid("proxy_import", import::fuzzing::import);
    valid("proxy_sources", proxy::fuzzing::sources);
    valid("toml_format", record::fuzzing::toml_format);
    valid("fleet_message", fleet::fuzzing::message);
    valid("nats_server", fleet::fuzzing::nats_server);
}

#[test]
fn a_decoder_that_costs_too_much_is_found() {
    let fails = |decode: fn(&[u8])| {
        let input = vec![b'a'; 20_000];
        let check = || decode_cost::check("client_hello", &input, decode);
        std::panic::catch_unwind(check).is_err()
    };
    // Linear, but with a factor that is too large: 40 bytes of memory for each.
    assert!(fails(|bytes| drop(bytes.iter().map(|byte| [u64::from(*byte); 5]).collect::<Vec<_>>())));
    // The length is within the factor, and the capacity is not.
    assert!(fails(|bytes| drop(Vec::<u8>::with_capacity(100 * bytes.len()))));
    // Sized by a field of the input.
    assert!(fails(|bytes| drop(vec![0_u8; usize::from(bytes[0]) << 20])));
    // Quadratic time.
    let quadratic = |bytes: &[u8]| {
        (0..bytes.len()).for_each(|end| {
            std::hint::black_box(
                bytes[..end].iter().fold(0_u64, |sum, byte| sum.rotate_left(1) ^ u64::from(*byte)),
            );
        });
    };
    assert!(fails(quadratic));
    // Quadratic in allocations that are freed at once.
    assert!(fails(|bytes| (0..bytes.len())
        .step_by(16)
        .for_each(|end| drop(std::hint::black_box(bytes[..end].to_vec())))));
    // Memory that stays.
    assert!(fails(|bytes| std::mem::forget(bytes[..10].to_vec())));
    // The decoy: a copy.
    assert!(!fails(|bytes| drop(bytes.to_vec())));
}

#[test]
fn the_table_of_the_budgets_and_the_list_of_the_targets_are_complete() {
    let read = |name: &str| std::fs::read_to_string(fuzz_directory().join(name)).unwrap();
    let readme = read("README.md");
    for budget in BUDGETS {
        let row = format!(
            "| `{}` | {} KiB + {} | {} | {} |",
            budget.target,
            budget.memory_kib,
            budget.memory_factor,
            budget.allocated_factor,
            budget.steps_factor
        );
        assert!(readme.contains(&row), "fuzz/README.md needs the row\n{row}");
    }
    let manifest = read("Cargo.toml");
    let targets: Vec<&str> =
        manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")).collect();
    assert_eq!(targets.len(), BUDGETS.len(), "a fuzz target without a budget, or the reverse");
    for budget in BUDGETS {
        assert!(
            targets.contains(&&*format!("{}.rs\"", budget.target)),
            "{} is no fuzz target",
            budget.target
        );
    }
}
