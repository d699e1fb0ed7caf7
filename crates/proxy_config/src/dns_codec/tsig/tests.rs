//! Signatures of DNS messages, and files of keys.

use super::super::update::{ZoneRecordType, encode_zone_question};
use super::*;

const SECRET: &str = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=";
const NOW_S: u64 = 1_795_000_000;

fn key(algorithm: TsigAlgorithm) -> TsigKey {
    TsigKey::new("Weir.Example.", algorithm, SECRET).unwrap()
}

/// Returns a signed request, its signature, and a response that the owner of `signer` signed.
fn exchange(signer: &TsigKey, error: u16) -> (Vec<u8>, Vec<u8>) {
    let mut request = encode_zone_question(7, "a.test", ZoneRecordType::Soa).unwrap();
    let signature = key(TsigAlgorithm::HmacSha256).sign(&mut request, NOW_S).unwrap();
    let mut response = encode_zone_question(7, "a.test", ZoneRecordType::Soa).unwrap();
    response[2] |= 0x80;
    let fields = TsigFields { time_s: NOW_S, fudge_s: FUDGE_S, error, other: &[] };
    let code = signer.authentication_code(&signature, &response, &fields).unwrap().finish();
    let mut record = Vec::new();
    push_name(&mut record, &signer.name).unwrap();
    push_u16s(&mut record, &[TYPE_TSIG, CLASS_ANY, 0, 0]);
    let mut content = Vec::new();
    push_name(&mut content, signer.algorithm.name()).unwrap();
    content.extend_from_slice(&time_bytes(NOW_S));
    push_u16s(&mut content, &[FUDGE_S, code.len() as u16]);
    content.extend_from_slice(&code);
    push_u16s(&mut content, &[7, error, 0]);
    push_u16s(&mut record, &[content.len() as u16]);
    response.extend(record);
    response.extend(content);
    response[11] = 1;
    (signature, response)
}

/// The code of Python's hmac for the question and the variables of RFC 8945 §4.3.
#[test]
fn a_request_is_signed_as_by_others() {
    let mut request = encode_zone_question(7, "a.test", ZoneRecordType::Soa).unwrap();
    let unsigned = request.clone();
    let signature = key(TsigAlgorithm::HmacSha256).sign(&mut request, NOW_S).unwrap();
    let text: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, "3655cfe116c522de9338d194a3b2851fb281f13aef45951c4560a291f278d8f9");
    assert_eq!(request[11], 1);
    assert!(request.starts_with(&unsigned[..10]) && request.ends_with(b"\0\x07\0\0\0\0"));
}

#[test]
fn only_the_owner_of_the_key_responds() {
    for algorithm in TsigAlgorithm::ALL {
        let (own, other) = (key(TsigAlgorithm::HmacSha256), key(algorithm));
        let (signature, response) = exchange(&other, 0);
        let result = own.verify(&response, &signature, NOW_S + 299);
        match algorithm {
            TsigAlgorithm::HmacSha256 => assert_eq!(result, Ok(())),
            _ => assert_eq!(result, Err(TsigError::OtherKey)),
        }
    }
    let own = key(TsigAlgorithm::HmacSha256);
    let (signature, response) = exchange(&own, 0);
    assert_eq!(own.verify(&response, b"another request", NOW_S), Err(TsigError::WrongSignature));
    assert_eq!(own.verify(&response, &signature, NOW_S + 301), Err(TsigError::BadTime));
    for at in 0..response.len() {
        let mut changed = response.clone();
        changed[at] ^= 1;
        // The letters of names may have either case.
        let same_name = changed.eq_ignore_ascii_case(&response);
        // The TTL is not signed, and the ID is that of the record.
        let is_unsigned =
            at < 2 || own.verify(&changed, &signature, NOW_S).is_ok() && ttl_of(&response).contains(&at);
        assert!(own.verify(&changed, &signature, NOW_S).is_err() || same_name || is_unsigned, "{at}");
        assert!(own.verify(&response[..at], &signature, NOW_S).is_err(), "{at}");
    }
    let secret = base64::engine::general_purpose::STANDARD.encode([9; 32]);
    let stranger = TsigKey::new("weir.example", TsigAlgorithm::HmacSha256, &secret).unwrap();
    let (signature, response) = exchange(&stranger, 0);
    assert_eq!(own.verify(&response, &signature, NOW_S), Err(TsigError::WrongSignature));
    let unsigned = encode_zone_question(7, "a.test", ZoneRecordType::Soa).unwrap();
    assert_eq!(own.verify(&unsigned, &signature, NOW_S), Err(TsigError::Unsigned));
}

/// Returns the positions of the TTL and the class of the signature's record.
fn ttl_of(response: &[u8]) -> std::ops::Range<usize> {
    let start = TsigRecord::find(response).unwrap().start + "\u{4}weir\u{7}example\0".len() + 4;
    start..start + 4
}

#[test]
fn errors_of_the_server_are_explained() {
    let own = key(TsigAlgorithm::HmacSha256);
    for (error, part) in
        [(16, "another secret"), (17, "does not know the key weir.example"), (18, "clocks"), (22, "22")]
    {
        let (signature, response) = exchange(&own, error);
        let text = own.verify(&response, &signature, NOW_S).unwrap_err().to_string();
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_key_file_is_that_of_bind() {
    let text = format!(
        "# made by tsig-keygen\n/* key \"x\" {{ */\nkey \"weir.example.\" {{\n\talgorithm HMAC-SHA512; // strong\n\
         \tsecret \"{SECRET}\";\n}};\n"
    );
    assert_eq!(TsigKey::parse_file(&text), Ok(key(TsigAlgorithm::HmacSha512)));
    let unquoted = format!("key weir.example{{secret {SECRET};algorithm hmac-sha256;}};");
    assert_eq!(TsigKey::parse_file(&unquoted), Ok(key(TsigAlgorithm::HmacSha256)));
    let fault = |text: &str| TsigKey::parse_file(text).unwrap_err();
    for text in ["", "key", "key \"a\"", "key a { secret \"x\";", "secret x;", "\"", "/*", "key a b"] {
        assert_eq!(fault(text), KeyFault::NoKey, "{text}");
    }
    assert_eq!(fault("key a { algorithm hmac-sha256; };"), KeyFault::Missing("secret"));
    assert_eq!(fault("key a { secret \"x\"; };"), KeyFault::Missing("algorithm"));
    assert_eq!(fault("key a { algorithm hmac-md5; secret \"x\"; };"), KeyFault::Algorithm("hmac-md5".into()));
    assert_eq!(fault("key a { algorithm hmac-sha256; secret \"*\"; };"), KeyFault::Base64);
    assert_eq!(fault("key a { algorithm hmac-sha256; secret \"AAAA\"; };"), KeyFault::SecretLength(3));
    assert_eq!(fault(&format!("{text}{text}")), KeyFault::SeveralKeys);
    assert!(!format!("{:?}", key(TsigAlgorithm::HmacSha256)).contains('['));
}
