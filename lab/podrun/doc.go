// Package podrun runs one container of a Deployment as a local process, the
// way a kubelet would run it: with the command, the environment, the mounted
// Secrets and ConfigMaps, the ServiceAccount token and the probes that the
// manifest states. In the lab pods are simulated; what is run here is real,
// and is what the manifests say.
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
// Paths. A volume lies in a folder under Options.Dir. Where arguments and
// environment name a path under a mount, they are rewritten to that folder;
// inside files nothing is rewritten. A default path that is compiled into the
// program is not reached: state it in the manifest.
//
// Identity. client-go's in-cluster configuration reads the fixed path
// /var/run/secrets/kubernetes.io/serviceaccount, which a process beside others
// cannot have. So KUBERNETES_SERVICE_HOST is not set, and the variable
// KUBECONFIG names a file with the same server, CA, token file and namespace:
// a program that loads its configuration by client-go's default rules finds
// it. The token is the ServiceAccount's own, by a TokenRequest, so the RBAC of
// the manifests is what counts; it is renewed like a kubelet does.
//
// Ports. There is no network namespace: each containerPort needs a local port
// in Options.Ports. Flags and variables whose name ends in "port", and
// addresses without a host or with a local one (:8443, 0.0.0.0:8443), are
// rewritten, as are the probes. Names of Services are resolved by
// Options.Addresses. For what the manifest does not state there are
// Options.Flags and Options.Env, which win over everything.
//
// Resources, security contexts, affinity and lifecycle hooks have no effect.
// Init containers and volumes other than secret, configMap, downwardAPI,
// projected and emptyDir are refused.
//
// # What is the same
//
// $(VAR) expansion, valueFrom and envFrom; volumes are updated in one step by
// a symbolic link (..data) when Refresh is called or, if the Source can watch,
// by itself; variables only with the next start; the process is started again
// with a growing pause when it ends or its liveness probe fails; SIGTERM and
// the grace period at the end. The process dies with its parent.
package podrun
