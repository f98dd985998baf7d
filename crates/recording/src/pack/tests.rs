use super::*;

fn round_trip(lines: &[&str]) -> usize {
    let (mut packer, mut packed) = (Packer::default(), Vec::new());
    lines.iter().for_each(|line| packer.pack(line.as_bytes(), &mut packed));
    let (mut unpacker, mut rest, mut line) = (Unpacker::default(), packed.as_slice(), Vec::new());
    for expected in lines {
        unpacker.unpack(&mut rest, &mut line).unwrap();
        assert_eq!(String::from_utf8_lossy(&line), *expected);
    }
    assert!(rest.is_empty());
    packed.len()
}

#[test]
fn numbers_of_every_notation_are_read_as_they_were_written() {
    let numbers = [
        "0",
        "-0",
        "7",
        "-7",
        "0.0",
        "-0.0",
        "0.5",
        "-0.5",
        "17.236",
        "17.2360",
        "007",
        "1e300",
        "1E-7",
        "-1.5e+9",
        "0.1234567",
        "0.123456",
        "123456789.123456",
        "1234567890.5",
        "999999999999999",
        "18446744073709551615",
        "-9223372036854775808",
        "1.",
        "1-2",
        "100.000001",
    ];
    let lines: Vec<String> = numbers.iter().map(|number| format!("{{\"a\":{number},\"b\":[{number},1]}}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    round_trip(&lines);
    let in_string = ["09:59.000001", "10:00.100000", "a\\\"1\\\\2\\u0001é\\n3", "12345678901234567890", ""];
    let lines: Vec<String> = in_string
        .iter()
        .flat_map(|text| [format!("{{\"t\":\"{text}\",\"n\":1}}"), format!("{{\"t\":\"{text}\",\"n\":2.5}}")])
        .collect();
    let lines: Vec<&str> = lines.iter().chain(&lines).map(String::as_str).collect();
    round_trip(&lines);
}

#[test]
fn lines_that_differ_in_numbers_only_take_few_bytes() {
    let lines: Vec<String> = (0..1000)
        .map(|at| {
            format!(
                "{{\"record\":{{\"iter\":{at},\"ms\":{}.25,\"time\":\"11:{:02}\",\"x\":[1,2,3]}}}}",
                at % 7,
                at % 60
            )
        })
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let bytes = round_trip(&lines);
    assert!(bytes < 8 * lines.len(), "{bytes}");
}

#[test]
fn many_kinds_of_lines_and_long_lines_are_kept_in_bounded_memory() {
    let (mut packer, mut packed) = (Packer::default(), Vec::new());
    for at in 0..500 {
        packer.pack(format!("{{\"{}\":1}}", "x".repeat(at)).as_bytes(), &mut packed);
        packer.pack(format!("[{}]", "1,".repeat(LONGEST)).as_bytes(), &mut packed);
    }
    assert_eq!(packer.templates.all.len(), TEMPLATES);
    assert!(packer.templates.all.iter().all(|template| template.parts.marked.len() <= 520));
    let long = format!("[{}]", "1,".repeat(LONGEST));
    round_trip(&[&long, "[1]", &long, "[2]", "\u{1}\u{2}"]);
}

#[test]
fn damaged_bytes_are_an_error_or_other_lines_but_no_panic() {
    let (mut packer, mut packed) = (Packer::default(), Vec::new());
    for at in 0..20 {
        packer.pack(format!("{{\"a\":{at},\"b\":\"0{at}\",\"c\":1e{at}}}").as_bytes(), &mut packed);
    }
    for at in 0..packed.len() {
        for change in [1, 0x7f, 0x80, 0xff] {
            let mut damaged = packed.clone();
            damaged[at] ^= change;
            let (mut unpacker, mut rest, mut line) = (Unpacker::default(), damaged.as_slice(), Vec::new());
            while !rest.is_empty() && unpacker.unpack(&mut rest, &mut line).is_ok() {}
        }
    }
}
