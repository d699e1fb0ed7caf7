//! Selection of the cases of a self-test: by their set, their part, their names, and by what the machine can run.

use crate::case_part::CasePart;
use crate::cases::{CaseSet, HostCapabilities, NOT_INDUCED, TestCase};
use crate::matrix::NotInducible;

/// Wanted cases.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    pub set: CaseSet,
    /// Part of the proving ground; `None`: all of it.
    pub part: Option<CasePart>,
    /// Verdicts or names of cases; empty: all.
    pub only: &'a [String],
}

impl Selection<'_> {
    /// Returns the entries of `only` that are neither a verdict nor a case.
    pub fn unknown_names(&self, cases: &[TestCase]) -> Vec<String> {
        let is_known = |name: &String| {
            cases.iter().any(|case| case.verdict == *name || case.name == *name)
                || NOT_INDUCED.iter().any(|(code, _)| code == name)
        };
        self.only.iter().filter(|name| !is_known(name)).cloned().collect()
    }

    /// Returns the cases that can run here, and the reasons why others cannot.
    pub fn select<'c>(
        &self,
        cases: &'c [TestCase],
        machine: HostCapabilities<'_>,
    ) -> (Vec<&'c TestCase>, Vec<NotInducible>) {
        let is_selected = |code: &str| self.only.is_empty() || self.only.iter().any(|name| name == code);
        let in_part = |case: &&TestCase| self.part.is_none() || case.part() == self.part;
        let wanted = cases.iter().filter(in_part);
        let (mut selected, mut skipped) = (Vec::new(), Vec::new());
        for case in wanted.filter(|case| is_selected(&case.verdict) || is_selected(&case.name)) {
            match case.missing_requirement(machine) {
                None => selected.push(case),
                Some(why) => skipped.push(NotInducible { name: case.name.clone(), why }),
            }
        }
        let not_induced: &[_] = if self.set == CaseSet::Induced { NOT_INDUCED } else { &[] };
        for (code, why) in not_induced.iter().filter(|(code, _)| is_selected(code)) {
            skipped.push(NotInducible { name: (*code).to_owned(), why: (*why).to_owned() });
        }
        (selected, skipped)
    }

    /// Returns the name of the part in the result; only the foreign set has parts.
    pub fn part_name(&self) -> Option<String> {
        (self.set == CaseSet::Foreign).then(|| self.part.map_or("all", CasePart::name).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::induced::induced_cases;

    #[test]
    fn verdicts_and_names_select_and_the_others_are_skipped_with_their_reasons() {
        let cases = induced_cases();
        let only = ["none", "fd_limit_nginx", "numa_remote", "nope"].map(str::to_owned);
        let selection = Selection { set: CaseSet::Induced, part: None, only: &only };
        assert_eq!(selection.unknown_names(&cases), ["nope"]);
        let no_nginx = |name: &str| name != "nginx";
        let machine =
            HostCapabilities { is_root: true, cpus: 2, allow_global: false, has_program: &no_nginx };
        let (selected, skipped) = selection.select(&cases, machine);
        let names: Vec<&str> = selected.iter().map(|case| &*case.name).collect();
        assert_eq!(names, ["healthy_weir", "healthy_haproxy", "healthy_python"]);
        let skipped: Vec<&str> = skipped.iter().map(|case| &*case.name).collect();
        assert_eq!(skipped, ["healthy_nginx", "fd_limit_nginx", "numa_remote"]);
        assert_eq!(selection.part_name(), None);
    }
}
