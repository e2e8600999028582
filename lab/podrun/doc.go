// Package podrun runs one container of a Deployment as a local process, as a kubelet does: with the command,
// environment, mounted Secrets and ConfigMaps, ServiceAccount token and probes of the manifest. Other pods of the lab
// are simulated.
//
//	template, err := podrun.Template(manifest, "argocd-agent-principal")
//	pod, err := podrun.Start(ctx, podrun.Options{
//		Template: template, Namespace: "argocd", Dir: dir, Binary: "/path/to/argocd-agent",
//		Source: podrun.FromClient(admin), Server: podrun.Server{URL: url, CA: pem},
//		Ports:  map[int32]int{8443: p1, 8000: p2},
//		Addresses: map[string]string{"argocd-redis:6379": "127.0.0.1:34567"},
//	})
//	defer pod.Stop(ctx)
//	err = pod.WaitReady(ctx)
//
// # What differs from a pod
//
// Paths. A volume is a directory under Options.Dir. Paths under a mount are rewritten in arguments and environment, but
// not in files. A default path that is compiled into the binary is not rewritten: set it in the manifest.
//
// Identity. The in-cluster configuration of client-go reads a fixed path, which a process cannot have. So
// KUBERNETES_SERVICE_HOST is not set, and KUBECONFIG names a file with the same server, CA, token file and namespace. A
// binary that uses the default rules of client-go finds it. The token is a TokenRequest of the ServiceAccount, so the
// RBAC of the manifests applies. It is renewed as a kubelet does.
//
// Ports. There is no network namespace. Each containerPort needs a local port in Options.Ports. Flags and variables
// whose name ends in "port", addresses without a host or with a local one (:8443, 0.0.0.0:8443), and probes are
// rewritten. Options.Addresses resolves names of Services. Options.Flags and Options.Env override everything.
//
// Resources, security contexts, affinity and lifecycle hooks have no effect. Init containers, and volumes other than
// secret, configMap, downwardAPI, projected and emptyDir, are rejected.
//
// # What is the same
//
// $(VAR) expansion, valueFrom and envFrom. Volumes are updated atomically by a symbolic link (..data) when Refresh is
// called or, if the Source can watch, automatically. Variables change with the next start. The process is restarted
// with a growing pause if it exits or its liveness probe fails. It gets SIGTERM and the grace period at the end. It
// ends with its parent.
package podrun
