//! `sshd_config` of login and worker pods, and the authorized keys of root.
//!
//! The user's text is not checked: it is the last section of the file.

use crate::writer::{EXTRA_SECTION, Writer};

const LOGIN: &[(&str, &str)] = &[
    ("Include", "/etc/ssh/sshd_config.d/*.conf"),
    ("UsePAM", "yes"),
    ("X11Forwarding", "yes"),
    ("Subsystem", "sftp internal-sftp"),
];

const WORKER: &[(&str, &str)] = &[
    ("Include", "/etc/ssh/sshd_config.d/*.conf"),
    ("UsePAM", "yes"),
    ("Subsystem", "sftp internal-sftp"),
    ("AuthenticationMethods", "publickey password"),
];

/// Renders the `sshd_config` of login pods.
pub fn render_login_sshd_config(extra: &str) -> String {
    render_sshd_config(LOGIN, extra)
}

/// Renders the `sshd_config` of worker pods.
pub fn render_worker_sshd_config(extra: &str) -> String {
    render_sshd_config(WORKER, extra)
}

/// Unlike Slurm's files, these have the extra section even if it is empty.
fn render_sshd_config(options: &[(&str, &str)], extra: &str) -> String {
    let mut file = Writer::new(' ');
    file.section("GENERAL");
    for (key, value) in options {
        file.entry(key, value);
    }
    file.section(EXTRA_SECTION);
    file.raw(extra);
    file.finish()
}

/// Renders the authorized keys of root on login pods.
pub fn render_authorized_keys(keys: &str) -> String {
    let mut file = Writer::new(' ');
    file.section("SLINKY");
    file.raw(keys);
    file.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_extra_section_keeps_its_header_and_one_empty_line() {
        assert_eq!(
            render_worker_sshd_config(""),
            "#\n### GENERAL ###\nInclude /etc/ssh/sshd_config.d/*.conf\nUsePAM yes\n\
             Subsystem sftp internal-sftp\nAuthenticationMethods publickey password\n\
             #\n### EXTRA CONFIG ###\n\n"
        );
    }

    #[test]
    fn user_text_is_copied_verbatim() {
        let file = render_login_sshd_config("LoginGraceTime 600\n");
        assert!(
            file.ends_with("Subsystem sftp internal-sftp\n#\n### EXTRA CONFIG ###\nLoginGraceTime 600\n\n")
        );
        assert!(file.contains("\nX11Forwarding yes\n"));
        assert_eq!(render_authorized_keys("ssh-ed25519 A a@b\n"), "#\n### SLINKY ###\nssh-ed25519 A a@b\n\n");
    }
}
