//! A sound pattern and any key, given to the matcher and to the oracle of the tests.

use crate::fuzzing::grammar;
use crate::fuzzing::input::Input;
use crate::fuzzing::oracle::{LITERALS, REGEXES, SEGMENTS, Spec, SpecPart};
use keylapse_pattern::Pattern;

/// Both match, with the same values; those build the key again, and others only what comes back.
pub(crate) fn matcher(data: &[u8]) {
    let mut input = Input(data);
    let spec = spec(&mut input);
    let source = spec.source();
    let pattern = Pattern::new(&source).expect("sound by construction");
    let read = grammar::read(&source).expect("by the grammar, too");
    assert!(read.iter().map(|segment| segment.kind).eq(spec.kinds()));
    let values: Vec<_> = pattern.capture_names().map(|_| value(&mut input)).collect();
    check_build(&pattern, &spec, &values);
    check_key(&pattern, &spec, &spec.join(&values));
    check_key(&pattern, &spec, input.0);
}

fn spec(input: &mut Input<'_>) -> Spec {
    let part = |input: &mut Input<'_>| match input.byte() % 3 {
        0 => {
            let literal = input.pick(&LITERALS);
            SpecPart::Literal(literal)
        }
        1 => SpecPart::Regex(usize::from(input.byte()) % REGEXES.len()),
        _ => SpecPart::Plain,
    };
    let head = input.byte();
    let mut parts: Vec<_> = (0..head % 6).map(|_| part(input)).collect();
    if head >= 128 || parts.is_empty() {
        parts.push(SpecPart::Rest);
    }
    Spec(parts)
}

fn value(input: &mut Input<'_>) -> Vec<u8> {
    let word = |input: &mut Input<'_>| input.pick(&SEGMENTS).to_vec();
    match input.byte() % 4 {
        0 => input.bytes().to_vec(),
        1 => [word(input), word(input)].join(&b':'),
        _ => word(input),
    }
}

fn check_build(pattern: &Pattern, spec: &Spec, values: &[Vec<u8>]) {
    let key = spec.join(values);
    let comes_back = spec.matches(&key).as_deref() == Some(values);
    assert_eq!(pattern.build(values).ok(), comes_back.then_some(key), "{pattern} {values:?}");
}

fn check_key(pattern: &Pattern, spec: &Spec, key: &[u8]) {
    let captures = pattern.matches(key);
    let values = captures.map(|c| c.iter().map(|(_, value)| value.to_vec()).collect::<Vec<_>>());
    assert_eq!(values, spec.matches(key), "{pattern} {}", key.escape_ascii());
    assert_eq!(values.is_some(), pattern.is_match(key));
    if let Some(values) = values {
        assert!(key.starts_with(pattern.literal_prefix().as_bytes()));
        assert_eq!(pattern.build(&values).as_deref(), Ok(key));
        assert!(pattern.build(&values[1.min(values.len())..]).is_err() || values.is_empty());
    }
}
