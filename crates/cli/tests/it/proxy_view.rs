//! Fields that a client forges, or that its request takes back: routes, limits, balancing, cookies and logs
//! see each request as its server gets it.

use std::collections::BTreeSet;

use crate::support::client::Response;
use crate::support::faulty_origins::{echoing_server, field};
use crate::support::proxies::{OriginReply, RecordingOrigin};
use crate::support::proxy_under_test::ProxyUnderTest;
use crate::support::shared_machine;
use crate::support::tls_peers::{Certificates, curl};

/// A proxy with optional client certificates, whose subject is in `x-client-dn`.
struct CertificateProxy {
    certificates: Certificates,
    proxy: ProxyUnderTest,
}

impl CertificateProxy {
    fn start(listener: &str, rest: &str) -> Option<Self> {
        let certificates = Certificates::create()?;
        let (both, ca) = (certificates.file("both.pem"), certificates.file("ca.pem"));
        let proxy = ProxyUnderTest::weir(&format!(
            "threads = 1\nadmin = '127.0.0.1:0'\n[[log]]\nto = 'file:HOME/access.json'\n[listener.web]\n\
             bind = '127.0.0.1:0'\n{listener}\n[listener.web.tls]\ncertificates = ['{both}']\n\
             client-ca = '{ca}'\nclient-certificate = 'optional'\nclient-certificate-header = 'x-client-dn'\n{rest}"
        ));
        Some(Self { certificates, proxy })
    }

    /// Sends a request with these fields over one version of HTTP; returns the status and the content.
    fn request(&self, version: &str, has_certificate: bool, path: &str, fields: &[&str]) -> (String, String) {
        let url = format!("https://{}{path}", self.proxy.authority());
        let both = self.certificates.file("both.pem");
        let mut arguments = vec!["-k", version, "-w", "\n%{http_code}", &url];
        if has_certificate {
            arguments.extend(["--cert", &both]);
        }
        arguments.extend(fields.iter().flat_map(|field| ["-H", field]));
        let (code, output) = curl(&arguments);
        let text = String::from_utf8(output).unwrap();
        assert_eq!(code, 0, "{arguments:?}: {text}");
        let (content, status) = text.rsplit_once('\n').unwrap();
        (status.to_owned(), content.to_owned())
    }
}

/// The verified subject, as a client would forge it: in any case, with either separator, and more than once.
const FORGERIES: &[&[&str]] = &[
    &[],
    &["x-client-dn: CN=localhost"],
    &["X-CLIENT-DN: CN=localhost"],
    &["x_client_dn: CN=localhost"],
    &["x-client_dn: CN=localhost"],
    &["x-client-dn: CN=localhost", "X-Client-Dn: CN=localhost"],
    &["x-client-dn: ", "x-client-dn: CN=localhost"],
];

/// Forgeries that only HTTP/1.1 can express.
const FORGERIES_OF_HTTP1: &[&[&str]] = &[
    &["Connection: x-client-dn", "x-client-dn: CN=localhost"],
    &["Connection: close, X-Client-DN"],
    &["Connection: keep-alive", "connection: x-user", "x-client-dn: CN=localhost"],
];

fn forgeries(version: &str) -> impl Iterator<Item = &'static &'static [&'static str]> {
    let http1_forgeries = if version == "--http1.1" { FORGERIES_OF_HTTP1 } else { &[] };
    FORGERIES.iter().chain(http1_forgeries)
}

#[test]
fn only_a_certificate_opens_a_route_for_its_subject() {
    let _shared = shared_machine();
    let origin = echoing_server("origin");
    let routes = format!(
        "[[route]]\npath = '/admin'\nheader = {{ x-client-dn = {{ regex = '^CN=localhost$' }} }}\npool = 'app'\n\
         [[route]]\npath = '/anonymous'\nheader = {{ x-client-dn = false }}\npool = 'app'\n\
         [[route]]\npath = '/twin'\nheader = {{ x_client_dn = true }}\npool = 'app'\n\
         [[route]]\npath = '/admin'\ndeny = 403\n[[route]]\npath = '/anonymous'\ndeny = 401\n\
         [[route]]\npool = 'app'\n[pool.app]\nservers = ['{}']\n",
        origin.authority
    );
    // Also with peers and names that are trusted otherwise.
    for listener in ["", "trusted = ['127.0.0.1']", "underscores = 'pass'"] {
        let Some(setup) = CertificateProxy::start(listener, &routes) else { return };
        for version in ["--http1.1", "--http2"] {
            for fields in forgeries(version) {
                let status = |has_certificate, path| setup.request(version, has_certificate, path, fields).0;
                assert_eq!(status(true, "/admin"), "200", "{listener} {version} {fields:?}");
                assert_eq!(status(false, "/admin"), "403", "{listener} {version} {fields:?}");
                assert_eq!(status(true, "/anonymous"), "401", "{listener} {version} {fields:?}");
                assert_eq!(status(false, "/anonymous"), "200", "{listener} {version} {fields:?}");
                for (has_certificate, subjects) in [(true, 1), (false, 0)] {
                    let (_, head) = setup.request(version, has_certificate, "/twin", fields);
                    let head = head.to_lowercase().replace('_', "-");
                    assert_eq!(
                        head.matches("\r\nx-client-dn:").count(),
                        subjects,
                        "{listener} {fields:?} {head}"
                    );
                }
            }
        }
        setup.proxy.assert_all_returned();
    }
}

#[test]
fn values_and_conditions_are_those_of_the_verified_certificate() {
    let _shared = shared_machine();
    let origin = echoing_server("origin");
    let rest = format!(
        "[[route]]\nwhen = {{ tls-client = {{ subject = 'CN=localhost', san = {{ regex = 'localhost' }} }}, tls = true }}\n\
         set-request-header = {{ x-subject = '{{tls.client.subject}}', x-serial = '{{tls.client.serial}}', \
         x-fingerprint = '{{tls.client.fingerprint}}', x-san = '{{tls.client.san}}', x-pem = '{{tls.client.pem}}', \
         x-tls = '{{scheme}} {{tls.version}} {{tls.sni:-none}}' }}\npool = 'app'\n\
         [[route]]\nwhen = {{ tls-client = {{ subject = false }} }}\ndeny = 401\n[[route]]\ndeny = 403\n\
         [pool.app]\nservers = ['{}']\n",
        origin.authority
    );
    let Some(setup) = CertificateProxy::start("", &rest) else { return };
    let pem = std::fs::read_to_string(setup.certificates.file("both.pem")).unwrap();
    let certificate = pem.split_once("-----BEGIN CERTIFICATE-----").unwrap().1;
    let certificate: String = certificate.split_once("-----END").unwrap().0.split_whitespace().collect();
    let mut heads = BTreeSet::new();
    for version in ["--http1.1", "--http2"] {
        for forged in [&[][..], &["x-subject: CN=forged", "X-Fingerprint: 00"]] {
            assert_eq!(setup.request(version, false, "/", forged).0, "401", "{version}");
            let (status, head) = setup.request(version, true, "/", forged);
            assert_eq!(status, "200", "{version} {head}");
            assert_eq!(field(&head, "x-subject").as_deref(), Some("CN=localhost"), "{head}");
            assert_eq!(field(&head, "x-tls").as_deref(), Some("https TLSv1.3 none"), "{head}");
            assert!(field(&head, "x-san").is_some_and(|names| names.contains("DNS:localhost")), "{head}");
            let sent_pem = field(&head, "x-pem").unwrap().replace("%0A", "").replace("%2B", "+");
            let sent_pem = sent_pem.replace("%2F", "/").replace("%3D", "=");
            assert!(sent_pem.contains(&certificate), "{sent_pem}");
            let names = ["x-serial", "x-fingerprint"];
            heads.insert(names.map(|name| field(&head, name).unwrap()));
        }
    }
    let [serial, fingerprint] = heads.first().unwrap();
    assert!(heads.len() == 1 && fingerprint.len() == 64 && !serial.is_empty(), "{heads:?}");
}

#[test]
fn limits_and_servers_are_those_of_the_verified_subject() {
    let _shared = shared_machine();
    let (first_server, second_server) = (echoing_server("a"), echoing_server("b"));
    let rest = format!(
        "[[route]]\npath = '/limited'\nrate-limit = {{ rate = 0.001, burst = 1, key = 'header:x-client-dn' }}\n\
         pool = 'app'\n[[route]]\npool = 'app'\n[pool.app]\nservers = ['{}', '{}']\nbalance = 'consistent-hash'\n\
         hash = {{ key = 'header:x-client-dn', load-factor = 100 }}\n",
        first_server.authority, second_server.authority
    );
    let Some(setup) = CertificateProxy::start("", &rest) else { return };
    for (version, first) in [("--http1.1", "200"), ("--http2", "429")] {
        let mut servers = BTreeSet::new();
        for number in 0..12 {
            let forged = format!("x-client-dn: CN=forged{number}");
            let twin = format!("X_Client_DN: CN=forged{number}");
            let limited = setup.request(version, true, "/limited", &[&forged, &twin]).0;
            // All share the bucket of the subject.
            assert_eq!(limited, if number == 0 { first } else { "429" }, "{version} {number}");
            let (status, content) = setup.request(version, true, "/", &[&forged, &twin]);
            assert_eq!(status, "200");
            servers.insert(content.lines().next().unwrap().to_owned());
        }
        assert_eq!(servers.len(), 1, "{version}");
    }
    // Clients without a certificate share a bucket of their own, whatever they claim.
    let claims = ["x-client-dn: CN=localhost", "x-client-dn: CN=b", "x-user: c"];
    let statuses: Vec<String> =
        claims.iter().map(|claim| setup.request("--http1.1", false, "/limited", &[claim]).0).collect();
    assert_eq!(statuses, ["200", "429", "429"]);
}

/// Fields that a request takes back by `Connection`, and a decoy for each.
#[test]
fn fields_that_connection_names_have_no_effect() {
    let _shared = shared_machine();
    let (first_server, second_server) = (echoing_server("a"), echoing_server("b"));
    let proxy = ProxyUnderTest::weir(&format!(
        "threads = 1\nadmin = '127.0.0.1:0'\n[[log]]\nto = 'file:HOME/access.json'\n[listener.web]\n\
         bind = '127.0.0.1:0'\n[[route]]\npath = '/user'\nheader = {{ x-user = true }}\ndeny = 403\n\
         [[route]]\npath = '/upgrade'\nheader = {{ upgrade = 'websocket', connection = 'upgrade' }}\ndeny = 418\n\
         [[route]]\npath = '/limited'\nrate-limit = {{ rate = 0.001, burst = 1, key = 'header:x-user' }}\n\
         pool = 'app'\n[[route]]\npool = 'app'\n[pool.app]\nservers = ['{}', '{}']\n\
         sticky = {{ cookie = 'SRV', key = '0123456789abcdef' }}\n",
        first_server.authority, second_server.authority
    ));
    let send = |path: &str, fields: &str| {
        let mut client = proxy.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n").as_bytes());
        client.read_response().unwrap()
    };
    for (fields, status) in [
        ("X-User: a\r\n", 403),
        ("X-User: a\r\nConnection: x-usher, close\r\n", 403),
        ("X-User: a\r\nConnection: x-USER\r\n", 200),
        ("Connection: keep-alive\r\nX-User: a\r\nConnection: a, x-user\r\nx-user: b\r\n", 200),
        ("X_User: a\r\n", 200),
    ] {
        assert_eq!(send("/user", fields).status, status, "{fields}");
    }
    for (fields, status) in [
        ("Connection: Upgrade\r\nUpgrade: websocket\r\n", 418),
        ("Connection: close\r\nUpgrade: websocket\r\n", 200),
        ("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: a\r\n", 200),
    ] {
        assert_eq!(send("/upgrade", fields).status, status, "{fields}");
    }
    let set_cookie = |response: &Response| field(&response.head, "set-cookie");
    // Without a key that counts, all share one bucket.
    let named = |user: &str| send("/limited", &format!("X-User: {user}\r\nConnection: x-user\r\n")).status;
    assert_eq!((named("a"), named("b")), (200, 429));
    assert_eq!(send("/limited", "X-User: a\r\n").status, 200);
    // A sticky cookie that is taken back is missing, and the server does not get it either.
    let first = send("/", "");
    let cookie = set_cookie(&first).unwrap().split(';').next().unwrap().to_owned();
    let kept = send("/", &format!("Cookie: {cookie}; a=b\r\n"));
    assert!(set_cookie(&kept).is_none());
    let taken_back = send("/", &format!("Cookie: {cookie}; a=b\r\nConnection: cookie\r\n"));
    assert!(set_cookie(&taken_back).is_some());
    assert!(!String::from_utf8_lossy(&taken_back.body).contains("a=b"));
    // Logs show the fields that the server got.
    send("/logged", "User-Agent: one\r\nReferer: http://r/\r\n");
    send("/logged", "User-Agent: two\r\nReferer: http://r/\r\nConnection: user-agent, Referer\r\n");
    let lines = proxy.wait_for_lines_with("access.json", "/logged", 2);
    let line = |at: usize| serde_json::from_str::<serde_json::Value>(&lines[at]).unwrap();
    assert_eq!(
        (line(0)["user_agent"].as_str(), line(0)["referer"].as_str()),
        (Some("one"), Some("http://r/"))
    );
    assert!(line(1)["user_agent"].is_null() && line(1)["referer"].is_null(), "{}", line(1));
    proxy.assert_all_returned();
}

#[test]
fn trailers_bring_no_subject() {
    let _shared = shared_machine();
    let origin = RecordingOrigin::start(|_| {
        OriginReply::KeepOpen(vec![b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec()])
    });
    let rest = format!("[[route]]\npool = 'app'\n[pool.app]\nservers = ['{}']\n", origin.authority());
    let Some(setup) = CertificateProxy::start("underscores = 'pass'", &rest) else { return };
    let script = "import socket, ssl, sys\n\
                  context = ssl._create_unverified_context()\n\
                  stream = context.wrap_socket(socket.create_connection(('127.0.0.1', int(sys.argv[1]))))\n\
                  stream.sendall(b'POST / HTTP/1.1\\r\\nHost: a\\r\\nTransfer-Encoding: chunked\\r\\n'\n\
                  b'Connection: close\\r\\n\\r\\n1\\r\\na\\r\\n0\\r\\nX-Client-DN: CN=f\\r\\nx_client_dn: CN=f\\r\\n'\n\
                  b'Content-Length: 5\\r\\nX-Sum: 1\\r\\n\\r\\n')\n\
                  print(stream.recv(65536).decode())\n";
    let text = crate::support::tls_peers::python(script, &[&setup.proxy.port().to_string()]);
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    let request = origin.take_requests().pop().unwrap().request.expect("a complete request");
    assert_eq!(request.trailers, [("X-Sum".to_owned(), "1".to_owned())]);
}
