//! CPU time of TLS.

use super::*;
use record::run::TlsSessions;

/// Returns a run whose subject spends 40 % of its full CPU in `function` of `module`.
fn busy_run(function: &str, module: &str) -> Run {
    let mut run = run(32, 4 * MS);
    run.observed[0].functions = vec![FunctionUse {
        role: "subject".to_owned(),
        function: function.to_owned(),
        module: module.to_owned(),
        self_fraction: 0.4,
        ..FunctionUse::default()
    }];
    set_subject_cpus(&mut run, 1.7, 0.1, 4);
    run
}

/// Sets the number of handshakes and the bytes of each response.
fn set_sessions(run: &mut Run, full: u64, resumed: u64, response_bytes: u64) {
    run.tls = Some(TlsSessions { full, resumed, ..TlsSessions::default() });
    run.totals.bytes_in = run.totals.responses * response_bytes;
}

#[test]
fn a_stripped_library_does_what_the_bytes_per_handshake_say() {
    for (function, module) in [
        ("libcrypto.so.3+0x129760", "libcrypto.so.3"),
        ("SHA512_Final", "libcrypto.so.3"),
        ("rustls::server::tls13::emit_finished", "proxy"),
    ] {
        let mut run = busy_run(function, module);
        let responses = run.totals.responses;
        set_sessions(&mut run, responses, 0, 3_000);
        assert_first(&run, "handshake_bound");
        set_sessions(&mut run, 32, responses - 32, 3_000);
        assert_first(&run, "handshake_bound");
        set_sessions(&mut run, 32, 0, 1_000_000);
        assert_first(&run, "bulk_crypto_bound");
        // Neither small responses on kept connections, nor a handshake for each large response.
        set_sessions(&mut run, 32, 0, 100);
        assert_first(&run, "user_cpu_bound");
        set_sessions(&mut run, responses, 0, 1_000_000);
        assert_first(&run, "user_cpu_bound");
    }
}

#[test]
fn names_of_functions_come_before_the_bytes_per_handshake() {
    let mut signatures = busy_run("aws_lc_0_47_0_rsaz_amm52x20_x2_ifma256", "weir");
    set_sessions(&mut signatures, 32, 0, 1_000_000);
    assert_first(&signatures, "handshake_bound");
    let mut encryption = busy_run("aws_lc_0_47_0_aes_gcm_encrypt_avx512", "weir");
    let responses = encryption.totals.responses;
    set_sessions(&mut encryption, responses, 0, 3_000);
    assert_first(&encryption, "bulk_crypto_bound");
    // Other code of the program, and a run without TLS.
    let mut other = busy_run("ngx_http_gzip_body_filter", "nginx");
    set_sessions(&mut other, responses, 0, 3_000);
    assert_first(&other, "user_cpu_bound");
    assert_first(&busy_run("libcrypto.so.3+0x129760", "libcrypto.so.3"), "user_cpu_bound");
}
