package main

import (
	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/proxy/resource"
)

// agentLive are what a user can say about live access to a workload cluster:
// what the hub may see and touch there beside what is synchronised.
type agentLive struct {
	enabled    bool
	level      resource.Level
	namespaces []string
	secrets    resource.Secrets

	reads, writes, create, logs, exec bool

	redis redisSettings
}

var spokeRedis = redisFlags{address: "redis-addr"}

// policySettings are those of them that are the policy.
var policySettings = []string{resource.SettingLevel, resource.SettingNamespaces, resource.SettingReads, resource.SettingWrites,
	resource.SettingCreate, resource.SettingLogs, resource.SettingExec, resource.SettingSecrets}

func (s *agentLive) declare(f *flags) {
	f.heading("Live access")
	f.add("enable-resource-proxy", onOff(&s.enabled, true),
		"The hub can look at this cluster while it is connected: resource trees and, as the settings below say, objects, logs and terminals. The rights of the agent's ServiceAccount are the outer bound.")
	f.add(resource.SettingLevel, choice(&s.level, resource.LevelApplications, resource.LevelNone, resource.LevelApplications, resource.LevelNamespaces, resource.LevelAll),
		"What the hub may reach: nothing, what is in the resource tree of an Application, also everything in some namespaces, or everything.")
	f.add(resource.SettingNamespaces, list(&s.namespaces, "PATTERNS"),
		"Those namespaces: names, or patterns with * and ?, separated by commas.")
	f.add(resource.SettingReads, onOff(&s.reads, true), "Objects may be read.")
	f.add(resource.SettingWrites, onOff(&s.writes, true), "Objects may be changed, deleted and created.")
	f.add(resource.SettingCreate, onOff(&s.create, true), "Objects may be created.")
	f.add(resource.SettingLogs, onOff(&s.logs, true), "Logs of pods may be read.")
	f.add(resource.SettingExec, onOff(&s.exec, true), "Terminals may be opened in pods, and ports forwarded to them.")
	f.add(resource.SettingSecrets, choice(&s.secrets, resource.SecretsMasked, resource.SecretsMasked, resource.SecretsPlain),
		"Values of Secrets are shown as Argo CD shows them, so that only changes can be told, or as they are.")
	s.redis.declare(f, spokeRedis, "the local Argo CD")
	f.envName("redis-addr", "REDIS_ADDR")
	f.envName("redis-username", "REDIS_USERNAME")
	f.envName("redis-password", "REDIS_PASSWORD")
	f.envName("redis-creds-dir-path", "REDIS_CREDS_DIR_PATH")
}

func (s *agentLive) check(f *flags, bad *validationErrors) (warnings []warning) {
	s.redis.check(f, bad, spokeRedis)
	policy := s.policy()
	if err := policy.Check(); err != nil {
		bad.add("--%w", err)
	}
	if s.level != resource.LevelNamespaces && f.changed(resource.SettingNamespaces) {
		bad.add("%s without --%s %s has no effect: add the one or remove the other", f.name(resource.SettingNamespaces), resource.SettingLevel, resource.LevelNamespaces)
	}
	if given := f.names(policySettings...); !s.enabled && given != "" {
		warnings = append(warnings, warning{given, "it has no effect while live access is turned off by " + f.name("enable-resource-proxy")})
	}
	return warnings
}

func (s *agentLive) policy() resource.Policy {
	return resource.Policy{Level: s.level, Namespaces: s.namespaces, Secrets: s.secrets,
		NoReads: !s.reads, NoWrites: !s.writes, NoCreate: !s.create, NoLogs: !s.logs, NoExec: !s.exec}
}

func (s *agentLive) config(cfg *agent.Config) error {
	if !s.enabled {
		return nil
	}
	endpoint, err := s.redis.endpoint()
	if err != nil {
		return err
	}
	cfg.Live = agent.Live{Resources: true, Policy: s.policy(), Redis: &endpoint}
	return nil
}
