//! What mends a login that fails, by what ssh and hosts print.

/// What mends a login or a login shell that fails for this reason; `%h` stands for the host.
pub fn of_login(cause: &str) -> &'static str {
    const NEW_KEY: &str =
        "if you know that it was installed anew, forget its old key: ssh-keygen -R %h";
    const SAID: [(&str, &str); 19] = [
        ("IDENTIFICATION HAS CHANGED", NEW_KEY),
        ("has changed and you have requested", NEW_KEY),
        ("Host key verification failed", "accept its key once, by hand: ssh %h"),
        (
            "Too many authentication failures",
            "offer it fewer keys: IdentitiesOnly yes in ~/.ssh/config",
        ),
        ("Permission denied (", "give it your key: ssh-copy-id %h; or load the key here: ssh-add"),
        (
            "Could not resolve hostname",
            "correct the name, or add it to DNS, /etc/hosts or ~/.ssh/config",
        ),
        ("stdio forwarding failed", "see whether the gateway reaches it: ssh GATEWAY nc -z %h 22"),
        ("UNKNOWN port", "log in to the gateway by hand first: ssh GATEWAY true"),
        ("Connection refused", "start sshd there, or set its Port in ~/.ssh/config"),
        (
            "timed out",
            "see whether it is up and no firewall drops ssh; behind a gateway: ProxyJump",
        ),
        ("No route to host", "see whether it is up; behind a gateway: ProxyJump in ~/.ssh/config"),
        ("Network is unreachable", "see the network of this machine: ip route get ADDRESS"),
        (
            "kex_exchange_identification",
            "its sshd is busy: raise MaxStartups there, or lower ssh_starts_max",
        ),
        ("Exceeded MaxStartups", "raise MaxStartups there, or lower ssh_starts_max"),
        (
            "no login within",
            "see what hangs: ssh %h true; start-up files of the shell, PAM, a dead home",
        ),
        ("cannot be run", "install ssh here, or correct the setting ssh"),
        ("restricted", "give the user a shell that runs /bin/sh: chsh -s /bin/bash USER"),
        (
            "not currently available",
            "give the user a shell that runs /bin/sh: chsh -s /bin/bash USER",
        ),
        (
            "start-up file",
            "end start-up files with return in shells that are not interactive, not with exit",
        ),
    ];
    let said = SAID.iter().find(|(text, _)| cause.contains(text));
    said.map_or("try it by hand: ssh -o BatchMode=yes %h true", |(_, remedy)| remedy)
}
