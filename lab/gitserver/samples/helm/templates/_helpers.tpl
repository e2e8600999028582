{{- define "guestbook.labels" -}}
app: guestbook
release: {{ .Release.Name }}
{{- end }}
