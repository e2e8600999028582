package cli

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/argocd-agent/argocd-agent/install"
	"github.com/argocd-agent/argocd-agent/internal/existing"
	"github.com/argocd-agent/argocd-agent/internal/identity"
)

// What an import does with a setting or an object.
const (
	actKeep    = "keep"    // stays as it is, and our program uses it
	actConvert = "convert" // our program gets another form of it
	actIgnore  = "ignore"  // stays as it is, and our program does not use it
	actCreate  = "create"
	actStop    = "stop"
	actDecide  = "decide" // --set is required
	actRisk    = "risk"   // --accept-risks is required
	actRefuse  = "refuse"
	actWarn    = "warn"
)

// planItem is a row of the plan.
type planItem struct {
	Object string `json:"object"`
	Action string `json:"action"`
	Detail string `json:"detail,omitempty"`
}

// converter converts the settings of a Deployment of the existing argocd-agent.
type converter struct {
	role      string // principal or agent
	prefix    string // of its variables
	load      func(configMap string) (map[string]string, error)
	overrides map[string]string // of --set

	flagOf    map[string]string // variable, old or ours → flag
	variables map[string]string // flag → our variable
	ignored   map[string]string // flag → reason

	converted
}

// converted is the result of a conversion.
type converted struct {
	items  []planItem
	flags  map[string]string // flag → value
	values map[string]string // our variable → value
	pod    install.Imported
}

// existingSetting is a setting that is not empty.
type existingSetting struct {
	source   string // ConfigMap key, variable or flag
	flag     string
	variable string // empty if it is an argument
	value    string
}

func prefixOf(role string) string {
	if role == rolePrincipal {
		return existing.PrincipalPrefix
	}
	return existing.AgentPrefix
}

func variableName(flag string) string {
	return strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// convert returns what our program needs to run with the settings of d.
func convert(role string, d *appsv1.Deployment, overrides map[string]string, load func(configMap string) (map[string]string, error)) (*converted, error) {
	c := &converter{role: role, prefix: prefixOf(role), load: load, overrides: overrides, flagOf: map[string]string{}, variables: install.Variables(role), ignored: map[string]string{},
		converted: converted{flags: map[string]string{}, values: map[string]string{}}}
	for flag, variable := range c.variables {
		c.flagOf[variable] = flag
	}
	for flag, variable := range existing.Variables[c.prefix] {
		c.flagOf[variable] = flag
	}
	for _, one := range existing.Ignored[c.prefix] {
		c.ignored[one.Flag] = one.Reason
		c.flagOf[cmp.Or(one.Variable, c.prefix+variableName(one.Flag))] = one.Flag
	}
	container := &d.Spec.Template.Spec.Containers[0]
	all, err := c.read(container)
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		c.flags[one.flag] = one.value
	}
	for _, one := range all {
		c.add(one)
	}
	c.addVolumes(container, d.Spec.Template.Spec.Volumes)
	for _, variable := range slices.Sorted(maps.Keys(overrides)) {
		c.values[variable] = overrides[variable]
		c.item(variable, actConvert, fmt.Sprintf("to %q, by --set", overrides[variable]))
	}
	c.pod.PodLabels = d.Spec.Template.Labels
	return &c.converted, nil
}

func (c *converter) item(object, action, detail string) {
	c.items = append(c.items, planItem{object, action, detail})
}

// read returns the settings, sorted by source. An argument overrides a variable.
func (c *converter) read(container *corev1.Container) ([]existingSetting, error) {
	args := &settings{flags: map[string]string{}}
	args.readArguments(append(slices.Clone(container.Command), container.Args...))
	var all []existingSetting
	for flag, value := range args.flags {
		all = append(all, existingSetting{source: "--" + flag, flag: cmp.Or(existing.Flags[c.prefix][flag], flag), value: value})
	}
	for _, one := range container.Env {
		s := existingSetting{source: one.Name, variable: one.Name, value: one.Value}
		s.flag = cmp.Or(c.flagOf[one.Name], strings.ToLower(one.Name))
		if from := one.ValueFrom; from != nil && from.ConfigMapKeyRef != nil {
			data, err := c.load(from.ConfigMapKeyRef.Name)
			if err != nil {
				return nil, err
			}
			s.source, s.value = from.ConfigMapKeyRef.Key, data[from.ConfigMapKeyRef.Key]
		} else if from != nil {
			c.addReference(&one)
			continue
		}
		if _, ok := args.flags[s.flag]; !ok {
			all = append(all, s)
		}
	}
	all = slices.DeleteFunc(all, func(s existingSetting) bool { return s.value == "" })
	slices.SortFunc(all, func(a, b existingSetting) int { return strings.Compare(a.source, b.source) })
	return all, nil
}

// redisSecret is the Secret that our pods mount for the password of Redis.
const redisSecret, redisSecretKey = "argocd-redis", "auth"

// addReference adds a variable that is read from a Secret or the pod.
func (c *converter) addReference(variable *corev1.EnvVar) {
	secret := variable.ValueFrom.SecretKeyRef
	if variable.Name == "REDIS_PASSWORD" && secret != nil && secret.Name == redisSecret && secret.Key == redisSecretKey {
		c.item(variable.Name, actConvert, fmt.Sprintf("to a volume with Secret %s", secret.Name))
		return
	}
	c.addEnv(variable)
	c.item(variable.Name, actKeep, "in the Deployment")
}

func (c *converter) addEnv(variable *corev1.EnvVar) {
	if object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(variable); err == nil {
		c.pod.Env = append(c.pod.Env, object)
	}
	if variable.Name == "REDIS_PASSWORD" { // instead of the volume
		c.values[c.variables["redis-creds-dir-path"]] = ""
	}
}

// needsRedisTLS reports whether a flag has a meaning only with TLS to Redis.
func needsRedisTLS(flag string) bool {
	return strings.HasPrefix(flag, "redis-tls-ca-") || strings.HasPrefix(flag, "redis-proxy-server-tls-")
}

const commonNameMethod = "mtls:CN=([^,]+)"

// add converts one setting.
func (c *converter) add(s existingSetting) {
	ours, reason := c.variables[s.flag], c.ignored[s.flag]
	key := cmp.Or(ours, c.prefix+variableName(s.flag))
	_, decided := c.overrides[key]
	switch decide := c.decision(s); {
	case decided: // --set has its own row
		return
	case decide != "":
		c.item(s.source, actDecide, fmt.Sprintf("%s: set --set %s=VALUE", decide, key))
		return
	case reason != "":
		c.item(s.source, actIgnore, reason)
		return
	case s.flag == "redis-password":
		c.addEnv(&corev1.EnvVar{Name: "REDIS_PASSWORD", Value: s.value})
		c.item(s.source, actKeep, "in the Deployment")
		return
	case needsRedisTLS(s.flag) && c.flags["redis-tls-enabled"] != "true":
		c.item(s.source, actIgnore, "TLS to Redis is off")
		return
	case (s.flag == "auth" || s.flag == "creds") && strings.HasPrefix(s.value, "userpass:"):
		method := map[string]string{"auth": commonNameMethod, "creds": "mtls:"}[s.flag]
		c.values[ours] = method
		c.item(s.source, actConvert, fmt.Sprintf("to %s=%s: agents authenticate with client certificates", ours, method))
		return
	case ours == "" && s.variable != "" && !strings.HasPrefix(s.variable, c.prefix): // such as HTTPS_PROXY
		ours = s.variable
	case ours == "":
		c.item(s.source, actIgnore, "unknown setting")
		return
	}
	c.values[ours] = s.value
	if ours == s.variable {
		c.item(s.source, actKeep, s.value)
		return
	}
	c.item(s.source, actConvert, fmt.Sprintf("to %s=%s", ours, s.value))
}

// decision returns why a user must choose a value, or an empty string.
func (c *converter) decision(s existingSetting) string {
	switch {
	case s.flag == "auth" && !strings.HasPrefix(s.value, "userpass:"):
		if _, err := identity.ParseMethod(s.value); err != nil {
			return err.Error()
		}
	case s.flag == "ha-enabled" && s.value == "true":
		return "set up the other hub after the import, see docs/hubs.md. An empty value imports this hub without the other"
	case s.flag == "tls-min-version" && s.value != "tls1.2" && s.value != "tls1.3":
		return fmt.Sprintf("%s is not supported, use tls1.2 or tls1.3", s.value)
	}
	return ""
}

// addVolumes adds the volumes with files that converted settings name.
func (c *converter) addVolumes(container *corev1.Container, volumes []corev1.Volume) {
	for i := range volumes {
		for j := range container.VolumeMounts {
			volume, mount := &volumes[i], &container.VolumeMounts[j]
			if volume.Name != mount.Name {
				continue
			}
			below := strings.TrimSuffix(path.Clean(mount.MountPath), "/") + "/"
			used := false
			for _, value := range c.values {
				used = used || strings.HasPrefix(path.Clean(value)+"/", below)
			}
			if !used {
				c.item("volume "+volume.Name, actIgnore, "no converted setting names a file in it")
				continue
			}
			v, errVolume := runtime.DefaultUnstructuredConverter.ToUnstructured(volume)
			m, errMount := runtime.DefaultUnstructuredConverter.ToUnstructured(mount)
			if errVolume != nil || errMount != nil {
				continue // they were decoded from JSON
			}
			c.pod.Volumes, c.pod.Mounts = append(c.pod.Volumes, v), append(c.pod.Mounts, m)
			c.item("volume "+volume.Name, actKeep, "mounted at "+mount.MountPath)
		}
	}
}
