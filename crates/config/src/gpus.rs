//! The key `gpus` of an engine: the UUIDs of the GPUs that serve it.

use serde_saphyr::Spanned;

/// Checks the UUIDs of one engine and returns them in NVML's spelling. The error has the line and the text of a mistake.
pub(super) fn parse(
    gpus: &Spanned<Vec<Spanned<String>>>,
    names_its_engines: bool,
) -> Result<Vec<String>, (u64, String)> {
    let wrong = |why: &str| Err((gpus.referenced.line(), why.to_owned()));
    if names_its_engines {
        return wrong(
            "gpus needs one engine, but the engines of this source have names of their own; \
             give the entry a model (a socket), or remove gpus",
        );
    }
    if gpus.value.is_empty() {
        return wrong("gpus is empty; list the UUIDs that nvidia-smi -L prints, or remove gpus");
    }
    let mut found = Vec::new();
    for gpu in &gpus.value {
        let line = gpu.referenced.line();
        let uuid = uuid(&gpu.value).map_err(|why| (line, why))?;
        if found.contains(&uuid) {
            return Err((line, format!("gpus lists {uuid} twice; remove one of them")));
        }
        found.push(uuid);
    }
    Ok(found)
}

fn uuid(text: &str) -> Result<String, String> {
    if text.starts_with("MIG-") {
        return Err(format!(
            "gpus has {text:?}, which is a MIG instance; only whole GPUs count their energy, so remove it"
        ));
    }
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts = text.strip_prefix("GPU-").map(|rest| rest.split('-').collect::<Vec<_>>()).unwrap_or_default();
    if !parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12]) || !parts.into_iter().all(digits) {
        return Err(format!(
            "gpus has {text:?}, which is not the UUID of a GPU; \
             write it as nvidia-smi -L does: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
        ));
    }
    Ok(format!("GPU-{}", text["GPU-".len()..].to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "GPU-0a1b2c3d-0000-4000-8000-00000000000f";

    fn parsed(gpus: &[&str]) -> Result<Vec<String>, String> {
        let gpus = serde_saphyr::from_str(&format!("{gpus:?}")).unwrap();
        parse(&gpus, false).map_err(|(_, why)| why)
    }

    #[test]
    fn uuids_are_written_as_nvml_does() {
        let given = [UUID, &UUID.to_uppercase().replace("000F", "000E")];
        let expected = vec![UUID.to_owned(), UUID.replace("000f", "000e")];
        assert_eq!(parsed(&given), Ok(expected));
    }

    #[test]
    fn a_uuid_that_no_gpu_can_have_is_refused_with_the_form() {
        for wrong in ["0", "", "GPU-", "GPU-0a1b2c3d", &UUID[4..], &UUID.replace('f', "g"), &UUID[..UUID.len() - 1]] {
            let why = parsed(&[wrong]).unwrap_err();
            assert!(why.contains(&format!("{wrong:?}")) && why.contains("nvidia-smi -L"), "{why}");
        }
        let why = parsed(&["MIG-0a1b2c3d-0000-4000-8000-00000000000f"]).unwrap_err();
        assert!(why.contains("whole GPUs"), "{why}");
    }
}
