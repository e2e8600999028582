module github.com/argocd-agent/argocd-agent

go 1.26
