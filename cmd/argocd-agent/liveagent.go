package main

import (
	"github.com/argocd-agent/argocd-agent/internal/agent"
	"github.com/argocd-agent/argocd-agent/internal/proxy/resource"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// agentLive configures the live access of the hub to the workload cluster.
type agentLive struct {
	enabled    bool
	level      resource.Level
	namespaces []string
	secrets    resource.Secrets
	callers    resource.Callers

	reads, writes, create, logs, exec, orphans bool

	redis redisSettings
}

// policyFlags are the flags of the live access policy.
var policyFlags = []string{resource.SettingLevel, resource.SettingNamespaces, resource.SettingReads, resource.SettingWrites,
	resource.SettingCreate, resource.SettingLogs, resource.SettingExec, resource.SettingSecrets, resource.SettingCallers,
	resource.SettingOrphans}

// redisFlags are the flags of redisSettings with variables that Argo CD uses, too.
var redisFlags = []string{"redis-addr", "redis-username", "redis-password", "redis-creds-dir-path"}

func (s *agentLive) declare(f *flags) {
	f.heading("Live access")
	f.add("enable-resource-proxy", boolean(&s.enabled, true),
		"Give the hub live access to this cluster while the agent is connected: resource trees and, if the policy below permits it, "+
			"objects, logs and exec sessions. The permissions of the agent's ServiceAccount are the upper limit.")
	f.add(resource.SettingLevel, cmdline.Choice(&s.level, resource.LevelApplications, resource.LevelNone, resource.LevelApplications, resource.LevelNamespaces, resource.LevelAll),
		"Objects that the hub can access: none, those in the resource tree of an Application, in addition those in some namespaces, or all.")
	f.add(resource.SettingOrphans, boolean(&s.orphans, false),
		"At level application, include orphaned objects that the resource tree of an Application shows. An AppProject with "+
			"orphanedResources shows every object in the namespaces of its Applications that belongs to no Application.")
	f.add(resource.SettingNamespaces, list(&s.namespaces, "PATTERNS"),
		"Namespaces for level namespaces. Comma-separated names, or patterns with * and ?.")
	f.add(resource.SettingReads, boolean(&s.reads, true), "Allow reading objects.")
	f.add(resource.SettingWrites, boolean(&s.writes, true), "Allow changing, deleting and creating objects.")
	f.add(resource.SettingCreate, boolean(&s.create, true), "Allow creating objects.")
	f.add(resource.SettingLogs, boolean(&s.logs, true), "Allow reading logs of pods.")
	f.add(resource.SettingExec, boolean(&s.exec, true), "Allow exec sessions in pods and port forwarding.")
	f.add(resource.SettingSecrets, cmdline.Choice(&s.secrets, resource.SecretsMasked, resource.SecretsMasked, resource.SecretsPlain),
		"Values of Secrets: masked as in Argo CD, so that only changes are visible, or plain.")
	f.add(resource.SettingCallers, cmdline.Choice(&s.callers, resource.CallersIgnored, resource.CallersIgnored, resource.CallersRecorded, resource.CallersImpersonated),
		"Callers of live requests, as the hub knows them: ignore them, record them in the audit log of the API server, or also "+
			"impersonate users, so that their requests have their permissions on this cluster. The agent needs the permission to impersonate.")
	s.redis.declare(f, "redis-addr", "the local Argo CD")
	for _, name := range redisFlags {
		f.settings[name].env = environmentName(name)
	}
}

func (s *agentLive) check(f *flags) {
	s.redis.check(f, "redis-addr")
	s.redis.warnUnused(f)
	policy := s.policy()
	if err := policy.Check(); err != nil {
		f.fail("--%w", err)
	}
	f.requires(s.level == resource.LevelNamespaces, "--"+resource.SettingLevel+" "+string(resource.LevelNamespaces), resource.SettingNamespaces)
	if names := f.names(policyFlags...); !s.enabled && names != "" {
		f.warn(names, "no effect because "+f.name("enable-resource-proxy")+" turns live access off")
	}
}

func (s *agentLive) policy() resource.Policy {
	return resource.Policy{Level: s.level, Namespaces: s.namespaces, Secrets: s.secrets, Orphans: s.orphans,
		NoReads: !s.reads, NoWrites: !s.writes, NoCreate: !s.create, NoLogs: !s.logs, NoExec: !s.exec}
}

func (s *agentLive) config(cfg *agent.Config) error {
	if !s.enabled {
		return nil
	}
	endpoint, secrets, err := s.redis.endpoint(cfg.Namespace)
	if secrets != nil {
		cfg.Secrets = mergeHandlers(cfg.Secrets, secrets)
	}
	cfg.Live = agent.Live{Resources: true, Policy: s.policy(), Callers: s.callers, Redis: &endpoint}
	return err
}
