//! `cargo xtask chart`: helm lints and renders dist/helm/larix, and refuses values that are wrong.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, ensure};

/// Sets of values, and a text that what is rendered has.
const RENDERED: [(&[&str], &str); 6] = [
    (&[], "LARIX_REPLICAS: \"ldap://t-larix-0.t-larix-members.site.svc.cluster.local:3890 "),
    (&["replicas=1", "sample=true"], "LARIX_SAMPLE: \"yes\""),
    (
        &["tls.existingSecret=pair", "auth.existingSecret=words"],
        "LARIX_REPLICA_CA: /run/secrets/larix-tls/ca.crt",
    ),
    (&["ldifs.base\\.ldif=dn: dc=example", "adminPage=true"], "LARIX_LDIF: /ldifs"),
    (&["serviceMonitor.enabled=true", "backup.existingClaim=kept"], "kind: ServiceMonitor"),
    (
        &[
            "networkPolicy.clients[0].namespaceSelector.matchLabels.team=a",
            "networkPolicy.monitoring[0].podSelector.matchLabels.app=prometheus",
            "persistence.storageClass=fast",
            "image.pullSecrets[0].name=registry",
        ],
        "storageClassName: \"fast\"",
    ),
];
/// Values that helm has to refuse, and what it names.
const REFUSED: [(&str, &str); 4] = [
    ("replicas=0", "replicas"),
    ("image.pullPolicy=sometimes", "pullPolicy"),
    ("backup.keeps=7", "keeps"),
    ("suffix=example", "suffix"),
];

/// # Errors
/// helm is missing (`HELM` names another one), or the chart is not as it should be.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let chart = root.join("dist/helm/larix");
    let linted = helm(&["lint", "--strict"], &chart, &[])?;
    ensure!(linted.status.success(), "helm lint: {}", text(&linted.stdout));
    for (values, expected) in RENDERED {
        let rendered = template(&chart, values)?;
        let message = text(&rendered.stderr);
        ensure!(rendered.status.success(), "helm template with {values:?}: {message}");
        ensure!(text(&rendered.stdout).contains(expected), "helm template with {values:?} has no {expected}");
    }
    for (values, named) in REFUSED {
        let refused = template(&chart, &[values])?;
        ensure!(!refused.status.success(), "helm takes {values}");
        ensure!(
            text(&refused.stderr).contains(named),
            "helm does not name {named}: {}",
            text(&refused.stderr)
        );
    }
    println!("the chart: lint, {} renderings, {} refusals", RENDERED.len(), REFUSED.len());
    Ok(())
}

fn template(chart: &Path, values: &[&str]) -> anyhow::Result<Output> {
    helm(&["template", "t", "--namespace", "site", "--kube-version", "1.30.0"], chart, values)
}

fn helm(arguments: &[&str], chart: &Path, values: &[&str]) -> anyhow::Result<Output> {
    let program = std::env::var_os("HELM").unwrap_or_else(|| "helm".into());
    let mut command = Command::new(&program);
    command.args(arguments).arg(chart);
    for value in values {
        command.args(["--set", value]);
    }
    command.output().with_context(|| {
        format!(
            "cannot start {}: install helm (go install helm.sh/helm/v3/cmd/helm@latest), or name it with HELM",
            program.display()
        )
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
