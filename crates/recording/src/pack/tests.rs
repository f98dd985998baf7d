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
        packer.pack(rows_of(at, at % 2).as_bytes(), &mut packed);
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

/// Rows of a running batch: requests of several ranks wait, decode and end.
fn rows_of(iter: u64, rank: u64) -> String {
    let row = |slot: u64| {
        let (length, age) = (20 + slot * 7, iter + slot * 5);
        let (id, age) = (1 + slot + 100 * rank + 1000 * (age / length), age % length);
        match age {
            0 | 1 => format!(
                "{{\"id\":{id},\"stage\":\"QUEUED\",\"generated\":0,\"mean\":0.0,\"blocks\":0,\"transfer\":null}}"
            ),
            _ => format!(
                "{{\"id\":{id},\"stage\":\"G}}\\\"\",\"generated\":{age},\"mean\":1.0,\"blocks\":{},\"transfer\":{{\"ms\":1e{slot}}}}}",
                age / 8
            ),
        }
    };
    let rows: Vec<String> = (0..8).map(row).collect();
    format!("{{\"iter\":{iter},\"rank\":{rank},\"rows\":[{}],\"after\":{}}}", rows.join(","), iter % 3)
}

#[test]
fn rows_of_requests_of_several_ranks_take_few_bytes() {
    let lines: Vec<String> = (0..500).flat_map(|iter| (0..3).map(move |rank| rows_of(iter, rank))).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let bytes = round_trip(&lines);
    assert!(bytes < 24 * lines.len(), "{} bytes a line", bytes / lines.len());
}

#[test]
fn rows_in_any_order_and_of_any_shape_are_read_as_they_were_written() {
    let (a, b, c) = ("{\"id\":1,\"n\":5}", "{\"id\":2,\"n\":6,\"x\":[{}]}", "{\"id\":3}");
    let long = format!("{{\"id\":4,\"x\":\"{}\"}}", "y".repeat(2000));
    let many = vec![c; 2000].join(",");
    let rows = [
        format!("{a},{b},{c}"),
        format!("{c},{b},{a}"),
        format!("{b},{a},{b},{b},{c}"),
        a.to_owned(),
        format!("{a},{long}"),
        many,
        format!("{a}, {b}"),
        format!("{a},5"),
        "{\"id\":18446744073709551615},{\"id\":\"z\"},{}".to_owned(),
        format!("{c},{a},{b},{c}"),
    ];
    let lines: Vec<String> = rows.iter().map(|rows| format!("{{\"a\":[{rows}],\"b\":[{{\"id\":1}}]}}")).collect();
    let cut = ["[{\"id\":1", "[{\"id\":1}", "[{\"id\":1},", "[{\"id\":\"", "[{\"id\":1}]\u{4}"];
    let lines: Vec<&str> = lines.iter().map(String::as_str).chain(cut).collect();
    round_trip(&[&lines[..], &lines[..]].concat());
}

#[test]
fn the_rows_that_are_kept_are_bounded() {
    let (mut packer, mut packed) = (Packer::default(), Vec::new());
    for list in 0..300_u64 {
        let rows: Vec<String> = (0..50).map(|row| format!("{{\"id\":{},\"k{list}\":1}}", list * 50 + row)).collect();
        packer.pack(format!("[{}]", rows.join(",")).as_bytes(), &mut packed);
    }
    assert!(packer.rows.kept() <= 1024 + 16, "{}", packer.rows.kept());
}
