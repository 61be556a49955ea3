{{- define "rljob.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "rljob.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "rljob.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "rljob.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Like the full name, but with a suffix, and without dots: names of Services are DNS labels of at most 63 characters. */}}
{{- define "rljob.metricsService" -}}
{{- include "rljob.fullname" . | replace "." "-" | trunc 55 | trimSuffix "-" }}-metrics
{{- end }}

{{/* Label of the pods that pull images. */}}
{{- define "rljob.prePullName" -}}
{{- include "rljob.name" . | trunc 55 | trimSuffix "-" }}-prepull
{{- end }}

{{/* Installations for one namespace have cluster-wide roles of their own. */}}
{{- define "rljob.roleName" -}}
{{- $name := include "rljob.fullname" . }}
{{- if .Values.operator.watchNamespace }}
{{- printf "%s-%s" $name .Release.Namespace }}
{{- else }}
{{- $name }}
{{- end }}
{{- end }}

{{- define "rljob.selectorLabels" -}}
app.kubernetes.io/name: {{ include "rljob.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "rljob.labels" -}}
{{ include "rljob.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: rljob
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "rljob.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "rljob.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is needed when serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "rljob.tokenKeySecret" -}}
{{- default (printf "%s-token-key" (include "rljob.fullname" .)) .Values.tokenKey.existingSecret }}
{{- end }}

{{- define "rljob.repository" -}}
{{- printf "%s/%s" (trimSuffix "/" .Values.image.registry) .Values.image.repository }}
{{- end }}

{{- define "rljob.image" -}}
{{- $repository := include "rljob.repository" . }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* An image as it is written, or below image.registry: a registry's name has a dot or a port, or is localhost. */}}
{{- define "rljob.imageBelow" -}}
{{- $first := first (splitList "/" .name) }}
{{- if and (contains "/" .name) (or (contains "." $first) (contains ":" $first) (eq $first "localhost")) -}}
{{- .name }}
{{- else -}}
{{- printf "%s/%s" (trimSuffix "/" .root.Values.image.registry) .name }}
{{- end }}
{{- end }}

{{- define "rljob.rules" -}}
{{- $resynced := "resync_last_success_timestamp_seconds{job=\"rljob-operator\"} > " }}
{{- $limit := printf "%s%d" $resynced (mul 3 (int .Values.operator.resyncSeconds)) }}
{{- $runbooks := printf "runbook_url: %s/" (trimSuffix "/" (default "docs" .Values.metrics.runbooks)) }}
{{- .Files.Get "files/rules.yaml" | replace (print $resynced "900") $limit | replace "runbook_url: docs/" $runbooks }}
{{- end }}

{{/* Levels of a flavor's topology as a YAML list; the node is always the lowest level, so that Kueue knows which one failed. */}}
{{- define "rljob.topologyLevels" -}}
{{- without .topology "kubernetes.io/hostname" | compact | toYaml }}
- kubernetes.io/hostname
{{- end }}

{{/* Rows of accelerator classes: the rows of the values with the topology levels of the queues' flavors. */}}
{{- define "rljob.accelerators" -}}
{{- $rows := deepCopy .Values.accelerators }}
{{- $placed := dict }}
{{- range $name, $flavor := .Values.queues.flavors }}
{{- $levels := list }}
{{- if $flavor.topology }}
{{- $levels = include "rljob.topologyLevels" $flavor | fromYamlArray }}
{{- end }}
{{- if and (hasKey $placed $flavor.class) (ne (toJson (get $placed $flavor.class)) (toJson $levels)) }}
{{- fail (printf "queues.flavors.%s.topology: flavors of class %s must have the same levels, because its jobs may run on any of them" $name $flavor.class) }}
{{- end }}
{{- $_ := set $placed $flavor.class $levels }}
{{- end }}
{{- range $class, $levels := $placed }}
{{- if $levels }}
{{- $_ := set $rows $class (merge (dict "topologyLevels" $levels) (get $rows $class | default dict)) }}
{{- end }}
{{- end }}
{{- if $rows }}
{{- toYaml $rows }}
{{- end }}
{{- end }}

{{/*
A scrape job of files/scrape-config.yaml as parts of a PodMonitor: the fields of `spec`, and below those of its endpoint.
Prometheus Operator selects the targets by other fields, and sets the labels `namespace` and `pod` itself. A version that
does not know one of the limits drops the field.
*/}}
{{- define "rljob.scrapeLimits" -}}
{{- $name := .job -}}
{{- range $scrape := (.root.Files.Get "files/scrape-config.yaml" | fromYaml).scrape_configs }}
{{- if eq $scrape.job_name $name -}}
sampleLimit: {{ $scrape.sample_limit | int64 }}
labelLimit: {{ $scrape.label_limit | int64 }}
labelNameLengthLimit: {{ $scrape.label_name_length_limit | int64 }}
labelValueLengthLimit: {{ $scrape.label_value_length_limit | int64 }}
bodySizeLimit: {{ $scrape.body_size_limit }}
{{- end }}
{{- end }}
{{- end }}

{{- define "rljob.scrapeEndpoint" -}}
{{- $name := .job -}}
{{- range $scrape := (.root.Files.Get "files/scrape-config.yaml" | fromYaml).scrape_configs }}
{{- if eq $scrape.job_name $name -}}
honorLabels: {{ $scrape.honor_labels }}
honorTimestamps: {{ $scrape.honor_timestamps }}
followRedirects: {{ $scrape.follow_redirects }}
relabelings:
  - {targetLabel: job, replacement: {{ $name }}}
  {{- range $scrape.relabel_configs }}
  {{- if and .target_label (hasPrefix "r" .target_label) }}
  - sourceLabels: {{ toJson .source_labels }}
    targetLabel: {{ .target_label }}
  {{- end }}
  {{- end }}
metricRelabelings:
  {{- range $scrape.metric_relabel_configs }}
  - action: {{ .action }}
    regex: {{ .regex | quote }}
    {{- with .source_labels }}
    sourceLabels: {{ toJson . }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
