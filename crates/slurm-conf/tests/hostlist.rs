//! Hostlists compared with the output of Slurm 26.05, and round trips.

use proptest::prelude::*;
use rstest::rstest;
use slurm_conf::hostlist::{HostlistError, MAX_HOSTS, expand, fold, fold_set};

#[rstest]
#[case("n1,n2,n3", "n[1-3]")]
#[case("n1,n2,n3,n5", "n[1-3,5]")]
#[case("n1,n3,n2", "n[1,3,2]")]
#[case("n9,n10", "n[9-10]")]
#[case("n09,n10", "n[09-10]")]
#[case("n99,n100", "n[99-100]")]
#[case("n099,n100", "n[099-100]")]
#[case("n1,n01", "n[1,01]")]
#[case("n1,n1", "n[1,1]")]
#[case("n1,n2,m1,n3", "n[1-2],m1,n3")]
#[case("a,b,c", "a,b,c")]
#[case("n1-ib,n2-ib", "n1-ib,n2-ib")]
#[case("r1n1,r1n2,r2n1", "r1n[1-2],r2n1")]
#[case("n1,n01,n2", "n[1,01,2]")]
#[case("n9,n010", "n[9,010]")]
#[case("n8,n9,n010", "n[8-9,010]")]
#[case("n007", "n007")]
#[case("1,2,3", "[1-3]")]
#[case("n00,n01", "n[00-01]")]
#[case("n18446744073709551615,n1", "n[18446744073709551615,1]")]
#[case("n01,n02,n3", "n[01-02,3]")]
#[case("n5,n4,n3", "n[5,4,3]")]
#[case("", "")]
fn names_fold_as_scontrol_folds_them(#[case] names: &str, #[case] folded: &str) {
    assert_eq!(fold(names.split(',').filter(|name| !name.is_empty())), folded);
}

#[rstest]
#[case("n[1-3,5]", "n1 n2 n3 n5")]
#[case("n[01-03]", "n01 n02 n03")]
#[case("r[1-2]n[01-03]", "r1n01 r1n02 r1n03 r2n01 r2n02 r2n03")]
#[case("a,,b", "a b")]
#[case("a b", "a b")]
#[case("", "")]
#[case("n[1-2]x", "n1x n2x")]
#[case("n[9-11]", "n9 n10 n11")]
#[case("n[09-11]", "n09 n10 n11")]
#[case("n[1-010]", "n1 n2 n3 n4 n5 n6 n7 n8 n9 n10")]
#[case("n[1-2][3-4]", "n13 n14 n23 n24")]
#[case("[1-3]", "1 2 3")]
#[case("n1-3", "n1-3")]
#[case("n[1-2],m[3-4]", "n1 n2 m3 m4")]
#[case("n[5]", "n5")]
fn hostlists_expand_as_scontrol_expands_them(#[case] hostlist: &str, #[case] names: &str) {
    assert_eq!(expand(hostlist).unwrap().join(" "), names);
}

#[rstest]
#[case("n[3-1]", HostlistError::Range("3-1".into()))]
#[case("n[a-b]", HostlistError::Range("a-b".into()))]
#[case("n[]", HostlistError::Range(String::new()))]
#[case("n[1,]", HostlistError::Range(String::new()))]
#[case("n[-1]", HostlistError::Range("-1".into()))]
#[case("n[1-]", HostlistError::Range("1-".into()))]
#[case("n[+1]", HostlistError::Range("+1".into()))]
#[case("n[1-99999999999999999999]", HostlistError::Range("1-99999999999999999999".into()))]
#[case("n[1", HostlistError::Brackets("n[1".into()))]
#[case("n1]", HostlistError::Brackets("n1]".into()))]
#[case("n[[1]]", HostlistError::Brackets("n[[1]]".into()))]
#[case("n[1-70000]", HostlistError::TooMany(MAX_HOSTS))]
#[case("n[0-18446744073709551615]", HostlistError::TooMany(MAX_HOSTS))]
#[case("a[1-999]b[1-999]c[1-999]d[1-999]e[1-999]f[1-999]g[1-999]h[1-999]", HostlistError::TooMany(MAX_HOSTS))]
#[case("a[1-40000],b[1-40000]", HostlistError::TooMany(MAX_HOSTS))]
#[case("a[1-65536]b[1-65536]", HostlistError::TooMany(MAX_HOSTS))]
#[case::padding_beyond_any_name(&format!("n[{}-1]", "0".repeat(70_000)), HostlistError::TooLong)]
#[case::padding_that_grows(&format!("n[{}-9]", "0".repeat(253)), HostlistError::TooLong)]
#[case::many_long_names(&format!("{}[1-65536]", "a".repeat(1_000_000)), HostlistError::TooLong)]
#[case::many_brackets(&"[1]".repeat(300_000), HostlistError::TooLong)]
fn invalid_hostlist_is_rejected(#[case] hostlist: &str, #[case] error: HostlistError) {
    assert_eq!(expand(hostlist), Err(error));
}

#[test]
fn largest_range_of_slurm_is_accepted() {
    assert_eq!(expand("n[1-65536]").unwrap().len(), MAX_HOSTS);
}

#[test]
fn name_with_more_digits_than_any_host_is_folded_as_a_whole() {
    let name = format!("n{}", "0".repeat(70_000));
    assert_eq!(fold([name.as_str(), "n1"]), format!("{name},n1"));
}

#[test]
fn set_is_sorted_by_number_without_duplicates() {
    assert_eq!(fold_set(["n10", "login", "n2", "n1", "n2", "n02", "m1"]), "login,m1,n[1-2,02,10]");
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => ("[a-c]", 0..30_u32).prop_map(|(prefix, number)| format!("{prefix}{number}")),
        2 => ("[a-b]", 0..120_u32).prop_map(|(prefix, number)| format!("{prefix}{number:03}")),
        1 => "[a-z0-9]([a-z0-9.-]{0,22}[a-z0-9])?",
    ]
}

proptest! {
    #[test]
    fn expanding_a_folded_list_returns_the_names(names in prop::collection::vec(name(), 0..60)) {
        let folded = fold(names.iter().map(String::as_str));
        prop_assert_eq!(expand(&folded).unwrap(), names);
    }

    #[test]
    fn folding_an_expanded_list_returns_the_same_hostlist(names in prop::collection::vec(name(), 0..60)) {
        let folded = fold(names.iter().map(String::as_str));
        let expanded = expand(&folded).unwrap();
        prop_assert_eq!(fold(expanded.iter().map(String::as_str)), folded);
    }
}
